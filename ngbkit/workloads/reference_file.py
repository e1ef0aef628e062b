"""The f32 original of a quantised ONNX file, against whose outputs its own are compared: checked, attached, built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ngbkit.errors import UsageError, WorkloadError
from ngbkit.workloads import onnx, onnx_model
from ngbkit.workloads.base import Factors, Network, Workload
from ngbkit.workloads.onnx_traversal import walk_graphs
from ngbkit.workloads.precision import find_graph_precision

# They quantise a file whose inputs and weights are f32 or integers otherwise.
_QUANTISED = {"DequantizeLinear", "MatMulInteger", "ConvInteger", "MatMulNBits"}
# A dimension of an output that its file leaves open.
_OPEN = "?"

Output = tuple[str, tuple[str, ...] | None]
"""The dtype and the dimensions of an output; None where its file has no shape of it."""


def attach(workload: Workload, path: Path) -> Workload:
    """Return the workload with its original; UsageError if the file cannot be compared with it."""
    if workload.source != onnx.SOURCE.name:
        raise UsageError(
            f"invalid reference: got {path.name} for {workload.name}, which is no ONNX file; expected a network in a "
            "file of its own. Name that one: --reference NETWORK=FILE."
        )
    if not path.is_file():
        raise UsageError(
            f"invalid reference: got {path}, no such file; expected the f32 original of {workload.name}. Give the path "
            "of an .onnx file."
        )
    try:
        original, model = onnx.file(path), onnx_model.read_graph(path)
        _check_precision(workload, path, model)
        if workload.batch_axis and set(_list_inputs(original)) == set(_list_inputs(workload)):
            original = onnx.with_batch_axis(original, workload.batch_axis)
    except WorkloadError as error:
        raise UsageError(f"invalid reference for {workload.name}: {error}") from error
    _check_inputs(workload, path, original)
    _check_outputs(workload, path, model)
    artifacts = {**workload.artifacts, **original.artifacts}
    return replace(workload, reference=dict(original.spec), artifacts=artifacts)


def build(workload: Workload, factors: Factors) -> Network:
    """Build the original of a workload that has one."""
    return onnx.build(replace(workload, spec=workload.reference), factors)


def _check_precision(workload: Workload, path: Path, model: Any) -> None:
    operators = {node.op_type for graph in walk_graphs(model.graph) for node in graph.node}
    precision = find_graph_precision(model)
    if operators & _QUANTISED or precision == "q8":
        text = f"{path.name}, which is quantised itself"
    elif precision != "f32":
        text = f"{path.name}, which computes in {precision}"
    else:
        return
    raise UsageError(
        f"invalid reference: got {text}; expected an ONNX file in f32. Give the file that {workload.name} was "
        "quantised from."
    )


def _check_inputs(workload: Workload, path: Path, original: Workload) -> None:
    got, expected = _list_inputs(original), _list_inputs(workload)
    if got != expected:
        raise _refuse(workload, path, "inputs", _join(got), _join(expected))
    size = original.spec["batch_size"]
    if size not in (None, workload.spec["batch_size"]):
        batch = workload.spec["batch_size"] or "any number"
        raise _refuse(workload, path, "a batch of", str(size), str(batch))


def _list_inputs(workload: Workload) -> dict[str, str]:
    return {spec.name: f"{spec.dtype} {spec.format_shape()}" for spec in workload.inputs}


def _check_outputs(workload: Workload, path: Path, model: Any) -> None:
    quantised = onnx_model.read_graph(onnx.locate_graph(workload))
    got, expected = _describe_outputs(model), _describe_outputs(quantised)
    if list(got) != list(expected) or not all(_fit(got[name], expected[name]) for name in got):
        raise _refuse(workload, path, "outputs", _format(got), _format(expected))


def _describe_outputs(model: Any) -> dict[str, Output]:
    from onnx import TensorProto

    outputs: dict[str, Output] = {}
    for value in model.graph.output:
        tensor = value.type.tensor_type
        dtype = TensorProto.DataType.Name(tensor.elem_type).lower()
        sides = (
            str(side.dim_value) if side.HasField("dim_value") else side.dim_param or _OPEN for side in tensor.shape.dim
        )
        outputs[value.name] = dtype, tuple(sides) if tensor.HasField("shape") else None
    return outputs


def _fit(first: Output, second: Output) -> bool:
    """Return whether two outputs have one dtype and one shape, as far as both files say."""
    (dtype, sides), (expected_dtype, expected_sides) = first, second
    if sides is None or expected_sides is None or dtype != expected_dtype:
        return dtype == expected_dtype
    pairs = zip(sides, expected_sides, strict=False)
    is_same = all(side == expected or not (side + expected).isdigit() for side, expected in pairs)
    return is_same and len(sides) == len(expected_sides)


def _format(outputs: Mapping[str, Output]) -> str:
    return _join(
        {name: f"{dtype} ({_OPEN if sides is None else ', '.join(sides)})" for name, (dtype, sides) in outputs.items()}
    )


def _join(tensors: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {text}" for name, text in tensors.items())


def _refuse(workload: Workload, path: Path, noun: str, got: str, expected: str) -> UsageError:
    return UsageError(
        f"invalid reference: got {path.name} with {noun} {got}; expected {expected}, as {workload.name} has. Give the "
        "file that it was quantised from."
    )
