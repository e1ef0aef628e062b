"""The float64 outputs of an ONNX file: onnx's own NumPy operators, on a copy of the graph with every float widened.

ONNX Runtime's CPU provider lacks convolution and many other operators in double precision. onnx's reference evaluator
has them all, and is fast enough: two rows of resnet18, deit3_small or efficientnet_b3 take 3 to 5 s on one core.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ngbkit.errors import UnsupportedError
from ngbkit.workloads import feeds
from ngbkit.workloads.canonical import find_opset, lift
from ngbkit.workloads.onnx_traversal import find_reads, find_tensors, sort_nodes, walk_graphs
from ngbkit.workloads.outputs import to_arrays

if TYPE_CHECKING:
    from ngbkit.workloads.feeds import Array

_NARROW = frozenset({"float32", "float16", "bfloat16"})
# Before this opset the scales of quantised tensors are float32.
_WIDE_OPSET, _QUANTISING = 21, frozenset({"QuantizeLinear", "DequantizeLinear"})
# Attributes that name the type of a result.
_TYPE_ATTRIBUTES = frozenset({"to", "dtype", "output_dtype", "output_datatype", "softmax_precision"})


def run(path: Path, inputs: Mapping[str, Array], *, budget_s: float) -> list[Array]:
    """Run an ONNX file of static shapes in double precision, its weights as stored, and return its outputs in order.

    Floating outputs are float64; integers and booleans keep their type. `UnsupportedError`: an operator is unknown or
    has no double precision, or the run exceeds `budget_s` seconds.
    """
    results: list[list[Array] | Exception] = []
    timeout = threading.Event()

    def evaluate() -> None:
        try:
            results.append(_evaluate(path, inputs, timeout))
        except Exception as error:  # noqa: BLE001  the calling thread raises it below
            results.append(error)

    # An operator may loop in Python over all pixels; only a thread can be abandoned in the middle of one.
    thread = threading.Thread(target=evaluate, daemon=True)
    thread.start()
    thread.join(budget_s)
    timeout.set()
    result = results[0] if results else UnsupportedError(f"it takes longer than {budget_s:g} s")
    if isinstance(result, UnsupportedError):
        raise result
    if isinstance(result, Exception):
        line = " ".join(str(result).split())[:200]
        raise UnsupportedError(f"{type(result).__name__}: {line}") from result
    return result


def widen(model: Any) -> None:
    """Widen every floating type of an inlined `onnx.ModelProto`: weights, constants, casts, declarations."""
    import onnx

    for tensor in find_tensors(model.graph):
        if _is_narrow(tensor.data_type):
            array = onnx.numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    for graph in walk_graphs(model.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            _widen_type(value.type)
        for node in graph.node:
            _widen_node(node)


def _evaluate(path: Path, inputs: Mapping[str, Array], timeout: threading.Event) -> list[Array]:
    import onnx
    from onnx.inliner import inline_local_functions
    from onnx.reference import ReferenceEvaluator

    model = onnx.load(path)
    if model.functions:
        model = inline_local_functions(model)
    for graph in walk_graphs(model.graph):
        sort_nodes(graph)
    model = _lift_quantised(model)
    widen(model)
    evaluator = ReferenceEvaluator(model, new_ops=list(_build_operators()))
    outputs = [output.name for output in model.graph.output]
    reads = [find_reads(node) for node in model.graph.node]
    last_reads = {name: index for index, names in enumerate(reads) for name in names}
    values: dict[str, Any] = {"": None, **evaluator.rt_inits_}
    values |= {
        name: array.astype(np.float64) if feeds.is_floating(array.dtype) else array for name, array in inputs.items()
    }
    # Unlike `ReferenceEvaluator.run`, this loop frees every activation after its last use.
    for index, node in enumerate(evaluator.rt_nodes_):
        if timeout.is_set():
            raise TimeoutError
        context = {"context": values} if node.need_context() else {}
        results = node.run(*(values[name] for name in node.input), **context)
        values |= {name: _check_precision(node, value) for name, value in zip(node.output, results, strict=False)}
        for name in reads[index].union(node.output).difference(outputs, [""]):
            if last_reads.get(name, index) == index:
                values.pop(name, None)
    return [array for name in outputs for array in to_arrays(values[name])]


def _lift_quantised(model: Any) -> Any:
    """Lift a quantised model to the opset from which its operators take double precision."""
    if find_opset(model) >= _WIDE_OPSET or not any(node.op_type in _QUANTISING for node in model.graph.node):
        return model
    try:
        return lift(model, _WIDE_OPSET)
    except ValueError:
        return model  # the evaluator says which operator has no double precision


def _check_precision(node: Any, value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.name in _NARROW:
        raise UnsupportedError(f"onnx computes {node.op_type} in {value.dtype} only")
    return value


def _is_narrow(elem_type: int) -> bool:
    import onnx

    return elem_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


def _widen_type(value_type: Any) -> None:
    import onnx

    field = value_type.WhichOneof("value")
    if field in ("sequence_type", "optional_type"):
        _widen_type(getattr(value_type, field).elem_type)
    elif field == "tensor_type" and _is_narrow(value_type.tensor_type.elem_type):
        value_type.tensor_type.elem_type = onnx.TensorProto.DOUBLE


def _widen_node(node: Any) -> None:
    import onnx

    for attribute in node.attribute:
        if attribute.name in _TYPE_ATTRIBUTES and attribute.type == onnx.AttributeProto.INT and _is_narrow(attribute.i):
            attribute.i = onnx.TensorProto.DOUBLE
        if node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
            value = np.array(onnx.helper.get_attribute_value(attribute), np.float64)
            attribute.CopyFrom(onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(value)))
    if node.op_type == "ConstantOfShape" and not node.attribute:
        node.attribute.append(onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(np.zeros(1))))


@cache
def _build_operators() -> tuple[type, ...]:
    """Build the ``new_ops`` of a `ReferenceEvaluator` in place of operators that onnx up to 1.23 computes wrongly."""
    from onnx.reference.op_run import OpRun

    class GlobalMaxPool(OpRun):
        op_domain = ""

        def _run(self, x: Any) -> tuple[Any, ...]:
            return (np.max(x, axis=tuple(range(2, x.ndim)), keepdims=True),)

    class BatchNormalization(OpRun):
        op_domain = ""

        def _run(self, *inputs: Any, epsilon: float = 1e-5, training_mode: int = 0, **_: Any) -> tuple[Any, ...]:
            if training_mode:
                raise UnsupportedError("the file contains a BatchNormalization in training mode")
            x, *statistics = inputs
            shape = (-1, *[1] * (x.ndim - 2))
            scale, bias, mean, variance = (statistic.reshape(shape) for statistic in statistics)
            return (scale * (x - mean) / np.sqrt(variance + epsilon) + bias,)

    return (GlobalMaxPool, BatchNormalization)
