"""An ONNX file bound to shapes: every open dimension of its inputs gets a number, and what follows is inferred."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ngbkit.errors import UnsupportedError
from ngbkit.files import copy, write_atomically
from ngbkit.workloads import onnx_inputs
from ngbkit.workloads.base import TensorSpec
from ngbkit.workloads.onnx_traversal import find_external_files, find_inputs, infer_shapes, open_negative

#: Larger weights are saved beside the graph: a protobuf message is limited to 2 GB.
EMBEDDED_BYTES = 1_500_000_000

Shapes = Mapping[str, tuple[int, ...]]


def specialise(path: Path, batch_size: int, out: Path, *, inputs: Sequence[TensorSpec] = (), fold: bool = True) -> Path:
    """Bind the open dimensions of an ONNX file, write the static file to `out`, and return its path.

    `inputs` describe the inputs; by default the file itself does, and the factors that it leaves open stay so. A file
    without an open dimension is copied; another fixed batch size raises `UnsupportedError`. Unless `fold` is off, for a
    file to measure unchanged, the arithmetic on shapes is folded if onnxscript is installed; without it, shapes are
    only inferred, and runtimes fold for themselves.
    """
    import onnx

    model = load(path, out.parent)
    if not inputs:
        inputs, fixed = onnx_inputs.describe(path, model)
        if fixed not in (None, batch_size):
            raise UnsupportedError(describe_mismatch(fixed or 0, batch_size))
    if bind_shapes(model.graph, {spec.name: spec.bind(batch_size) for spec in inputs if not spec.factors}):
        model = _fold(model) if fold else infer_shapes(model)
    with write_atomically(out) as draft:
        onnx.save(model, draft, format="protobuf")
    return out


def bind_shapes(graph: Any, shapes: Shapes) -> bool:
    """Bind the inputs of an `onnx.GraphProto` to shapes; return whether a dimension was open.

    The declared shapes of outputs, and of the values between, are those of the traced batch, and some are wrong: where
    a dimension was open they are removed, for inference to find them. Where none was, all stay: those of a runtime's
    own operators cannot be inferred.

    `UnsupportedError`: a number of the file differs from the shape.
    """
    is_open = False
    for value in find_inputs(graph):
        for index, (dimension, size) in enumerate(
            zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False)
        ):
            if not dimension.HasField("dim_value"):
                dimension.dim_value, is_open = size, True
            elif dimension.dim_value != size:
                raise UnsupportedError(
                    f"invalid dimension {index} of input {value.name}: got {size}; expected {dimension.dim_value}, "
                    "which is fixed in the file. Use that size, or export the network again with a dynamic dimension."
                )
    if is_open:
        del graph.value_info[:]
        for output in graph.output:
            if output.type.WhichOneof("value") == "tensor_type":
                output.type.tensor_type.ClearField("shape")
    return is_open


def describe_mismatch(fixed: int | None, batch_size: int) -> str:
    """Describe a batch size that a network does not accept, with the remedy."""
    return (
        f"invalid batch size: got {batch_size}; expected {fixed}, as the batch of this network is fixed. Sweep batch "
        f"size {fixed}, or export the network again with a dynamic batch."
    )


def load(path: Path, folder: Path) -> Any:
    """Load a model with its weights; copy them to `folder` instead if they are too large for one file."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    sizes = find_external_files(model)
    if sum(sizes.values()) <= EMBEDDED_BYTES:
        model = onnx.load(path)
    else:
        for name in sizes:
            if not (folder / name).exists():
                copy(path.parent / name, folder / name)
    open_negative(model.graph)
    return model


def _fold(model: Any) -> Any:
    if find_spec("onnxscript") is not None and not find_external_files(model):
        from onnxscript import optimizer

        try:
            return optimizer.optimize(model)
        except Exception:  # noqa: BLE001  it does not know an operator, and folding is optional
            pass
    return infer_shapes(model)
