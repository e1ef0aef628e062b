"""What an ONNX file computes in float64: onnx's own NumPy operators, on a copy of the graph with every float widened.

ONNX Runtime's CPU provider has no convolution, and much else, in double precision. onnx's reference evaluator has all
of it, and is quick enough: two rows of resnet18, deit3_small or efficientnet_b3 take it 3 to 5 s on one core.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ngbkit.errors import UnsupportedError
from ngbkit.workloads.exact_operators import corrected
from ngbkit.workloads.export import tensors

if TYPE_CHECKING:
    from ngbkit.workloads.feeds import Array

_NARROW = frozenset({"float32", "float16", "bfloat16"})
# Attributes that name the type of a result.
_TYPES = frozenset({"to", "dtype", "output_dtype", "output_datatype", "softmax_precision"})


def run(path: Path, fed: Mapping[str, Array], *, budget_s: float) -> list[Array]:
    """The outputs of an ONNX file in float64: every weight as it is stored, every operation in double precision.

    Parameters
    ----------
    path
        The file, static in every dimension; its external data, if any, lies beside it.
    fed
        What to feed, by input name.
    budget_s
        Give up after so many seconds.

    Returns
    -------
    list
        One array an output: float64, or the integers or booleans that the network returns.

    Raises
    ------
    UnsupportedError
        An operator is unknown or has no double precision, or it all takes too long.
    """
    outcome: list[list[Array] | Exception] = []
    late = threading.Event()

    def work() -> None:
        try:
            outcome.append(_evaluate(path, fed, late))
        except Exception as error:  # noqa: BLE001  it is raised again below, in the thread that asked
            outcome.append(error)

    # One operator may be a loop in Python over all pixels: nothing but a thread can be left behind in the middle of it.
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(budget_s)
    late.set()
    result = outcome[0] if outcome else UnsupportedError(f"it takes longer than {budget_s:g} s")
    if isinstance(result, UnsupportedError):
        raise result
    if isinstance(result, Exception):
        line = " ".join(str(result).split())[:200]
        raise UnsupportedError(f"{type(result).__name__}: {line}") from result
    return result


def widen(model: Any) -> None:
    """Turn every floating type of an `onnx.ModelProto` into double, in place: weights, constants, casts, declarations.

    Its external data must be loaded, and its functions inlined.
    """
    for tensor in tensors(model.graph):
        _widen_tensor(tensor)
    for graph in _graphs(model.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            _widen_type(value.type)
        for node in graph.node:
            _widen_node(node)


def _evaluate(path: Path, fed: Mapping[str, Array], late: threading.Event) -> list[Array]:
    import onnx
    from onnx.inliner import inline_local_functions
    from onnx.reference import ReferenceEvaluator

    model = onnx.load(path)
    if model.functions:
        model = inline_local_functions(model)
    widen(model)
    evaluator = ReferenceEvaluator(model, new_ops=list(corrected()))
    names = [output.name for output in model.graph.output]
    reads = [_read_by(node) for node in model.graph.node]
    last = {name: index for index, read in enumerate(reads) for name in read}
    values: dict[str, Any] = {"": None, **evaluator.rt_inits_}
    values |= {name: array.astype(np.float64) if array.dtype.kind == "f" else array for name, array in fed.items()}
    # `ReferenceEvaluator.run` does this too, and keeps every activation of the network to its end.
    for index, node in enumerate(evaluator.rt_nodes_):
        if late.is_set():
            raise TimeoutError
        context = {"context": values} if node.need_context() else {}
        results = node.run(*(values[name] for name in node.input), **context)
        values |= {name: _checked(node, value) for name, value in zip(node.output, results, strict=False)}
        for name in reads[index].union(node.output).difference(names, [""]):
            if last.get(name, index) == index:
                values.pop(name, None)
    return [values[name] for name in names]


def _checked(node: Any, value: Any) -> Any:
    """The value, if it has not lost what double precision is for."""
    if isinstance(value, np.ndarray) and value.dtype.name in _NARROW:
        raise UnsupportedError(f"onnx computes {node.op_type} in {value.dtype} only")
    return value


def _graphs(graph: Any) -> Iterator[Any]:
    """A graph, and those in its nodes."""
    yield graph
    for node in graph.node:
        for inner in _inner(node):
            yield from _graphs(inner)


def _inner(node: Any) -> list[Any]:
    held = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
    return held + [graph for attribute in node.attribute for graph in attribute.graphs]


def _read_by(node: Any) -> set[str]:
    """The names that a node reads, the graphs in it included."""
    return set(node.input).union(*(_read_by(one) for graph in _inner(node) for one in graph.node))


def _is_narrow(elem_type: int) -> bool:
    import onnx

    return elem_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


def _widen_tensor(tensor: Any) -> None:
    import onnx

    if _is_narrow(tensor.data_type):
        array = onnx.numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))


def _widen_type(kind: Any) -> None:
    import onnx

    field = kind.WhichOneof("value")
    if field in ("sequence_type", "optional_type"):
        _widen_type(getattr(kind, field).elem_type)
    elif field == "tensor_type" and _is_narrow(kind.tensor_type.elem_type):
        kind.tensor_type.elem_type = onnx.TensorProto.DOUBLE


def _widen_node(node: Any) -> None:
    import onnx

    for attribute in node.attribute:
        if attribute.name in _TYPES and attribute.type == onnx.AttributeProto.INT and _is_narrow(attribute.i):
            attribute.i = onnx.TensorProto.DOUBLE
        if node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
            value = np.array(onnx.helper.get_attribute_value(attribute), np.float64)
            attribute.CopyFrom(onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(value)))
    if node.op_type == "ConstantOfShape" and not node.attribute:
        node.attribute.append(onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(np.zeros(1))))
