"""How large an ONNX file is: what it stores, what goes in and out of it, and its MACs, from shapes alone.

What is counted are the operators whose work has a definition: convolutions, matrix products, ``Einsum``, recurrent
layers and attention. Other standard operators work by element, or move data, and count as nothing, as they do in
``torch.utils.flop_counter``. An operator of a runtime's own that is not known here makes the count None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ngbkit.workloads.export import open_negative, tensors

Shapes = Mapping[str, tuple[int, ...]]

# A constant of more values than this is weights; of fewer, it may be a shape that others follow from.
_SHAPE_VALUES = 1024


class UncountableError(Exception):
    """The work of a node has no definition, or depends on a shape that is not known."""


def open_file(path: Path) -> Any:
    """The `onnx.ModelProto` of a file, its functions inlined, without the values of its weights."""
    import onnx
    from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data
    from onnx.inliner import inline_local_functions

    model = onnx.load(path, load_external_data=False)
    for tensor in tensors(model.graph):
        if math.prod(tensor.dims) > _SHAPE_VALUES:
            empty = onnx.TensorProto(dims=tensor.dims, data_type=tensor.data_type, name=tensor.name)
            tensor.CopyFrom(empty)
        elif uses_external_data(tensor):
            load_external_data_for_tensor(tensor, str(path.parent))
    return inline_local_functions(model) if model.functions else model


def parameters(model: Any) -> int:
    """The values of its constants, those of int64 (shapes, indices) left out."""
    import onnx

    kept = (tensor for tensor in tensors(model.graph) if tensor.data_type != onnx.TensorProto.INT64)
    return sum(math.prod(tensor.dims) for tensor in kept)


def weight_bytes(model: Any) -> int:
    """The bytes of its constants as they are stored, in the file or beside it."""
    return sum(_bytes(tensor.dims, tensor.data_type) for tensor in tensors(model.graph))


def bind(model: Any, rows: int) -> Any:
    """The graph at a batch of `rows`, with every shape that onnx can infer. Raises what onnx raises."""
    import onnx

    bound = onnx.ModelProto()
    bound.CopyFrom(model)
    open_negative(bound.graph)
    held = {tensor.name for tensor in bound.graph.initializer}
    for value in (*(one for one in bound.graph.input if one.name not in held), *bound.graph.output):
        dimensions = value.type.tensor_type.shape.dim
        if dimensions and not dimensions[0].HasField("dim_value"):
            dimensions[0].dim_value = rows
    del bound.graph.value_info[:]  # they hold the batch that was traced with
    return onnx.shape_inference.infer_shapes(bound, data_prop=True).graph


def output_bytes(graph: Any) -> int:
    """The bytes of what a graph with its shapes inferred returns.

    Raises
    ------
    UncountableError
        The shape of an output is not known.
    """
    shapes = _shapes(graph)
    return sum(_bytes(_known(shapes, value.name), value.type.tensor_type.elem_type) for value in graph.output)


def macs(graph: Any) -> int:
    """The multiply-accumulate operations of a graph with its shapes inferred.

    Raises
    ------
    UncountableError
        It holds an operator that is not known here, or a shape that onnx cannot infer.
    """
    shapes = _shapes(graph)
    return sum(work(node, shapes) for node in graph.node)


def is_idle(domain: str, kind: str) -> bool:
    """Whether an operator of that kind does nothing that counts, whatever its shapes: none that holds a graph is."""
    if kind in _HOLDING or (domain, kind) in _COUNTERS:
        return False
    return kind in _LIGHT if domain else _is_standard(kind)


def work(node: Any, shapes: Shapes) -> int:
    """The multiply-accumulate operations of one node.

    Raises
    ------
    UncountableError
        It is an operator that is not known here, or a shape that it takes is not.
    """
    counter = _COUNTERS.get((_domain(node), node.op_type))
    if counter is not None:
        return counter(node, shapes)
    if not _is_light(node) or not all(map(_is_idle, _inner_nodes(node))):
        raise UncountableError(f"{node.op_type} of {node.domain or 'onnx'}")
    return 0


def _is_idle(node: Any) -> bool:
    """Whether it does no work that counts, however often a branch or a loop runs it."""
    return (_domain(node), node.op_type) not in _COUNTERS and _is_light(node) and all(map(_is_idle, _inner_nodes(node)))


def _is_light(node: Any) -> bool:
    return node.op_type in _LIGHT if _domain(node) else _is_standard(node.op_type)


@cache
def _is_standard(kind: str) -> bool:
    import onnx

    return kind not in _UNDEFINED and bool(onnx.defs.has(kind))


def _domain(node: Any) -> str:
    return "" if node.domain == "ai.onnx" else str(node.domain)


def _inner_nodes(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            yield from graph.node


def _shapes(graph: Any) -> dict[str, tuple[int, ...]]:
    """The shapes that are known, by name."""
    found = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type
        if kind.HasField("shape") and all(one.HasField("dim_value") for one in kind.shape.dim):
            found[value.name] = tuple(one.dim_value for one in kind.shape.dim)
    return found


def _known(shapes: Shapes, name: str) -> tuple[int, ...]:
    if name not in shapes:
        raise UncountableError(f"the shape of {name} is not known")
    return shapes[name]


def _attribute(node: Any, name: str, default: Any) -> Any:
    import onnx

    return next((onnx.helper.get_attribute_value(one) for one in node.attribute if one.name == name), default)


def _bytes(shape: Iterable[int], elem_type: int) -> int:
    import onnx

    kind = onnx.TensorProto.DataType.Name(elem_type)
    packed = next((bits for name, bits in _PACKED.items() if kind.endswith(name)), None)
    bits: int = packed or 8 * onnx.helper.tensor_dtype_to_np_dtype(elem_type).itemsize
    return -(-math.prod(shape) * bits // 8)


# Types of which a byte holds several, with the bits of one.
_PACKED = {"INT2": 2, "INT4": 4, "FLOAT4E2M1": 4}


def _convolution(weight: int) -> Callable[[Any, Shapes], int]:
    """Every output takes one input channel group times the kernel; weights are (out, in / groups, *kernel)."""

    def count(node: Any, shapes: Shapes) -> int:
        return math.prod(_known(shapes, node.output[0])) * math.prod(_known(shapes, node.input[weight])[1:])

    return count


def _transposed_convolution(node: Any, shapes: Shapes) -> int:
    """Every input goes to one output channel group times the kernel; weights are (in, out / groups, *kernel)."""
    return math.prod(_known(shapes, node.input[0])) * math.prod(_known(shapes, node.input[1])[1:])


def _product(node: Any, shapes: Shapes) -> int:
    """Every output is a sum over the columns of the left matrix, which are the rows of the right one."""
    outputs = math.prod(_known(shapes, node.output[0]))
    left, right = shapes.get(node.input[0]), shapes.get(node.input[1])
    if left is None and right is not None and len(right) == 2 and node.op_type in ("Gemm", "MatMul"):
        return outputs * right[1 if _attribute(node, "transB", 0) else 0]
    return outputs * _known(shapes, node.input[0])[-2 if _attribute(node, "transA", 0) else -1]


def _einsum(node: Any, shapes: Shapes) -> int:
    """Of one operand, it moves and adds; of two, a multiplication for every value that the letters take together."""
    terms = _attribute(node, "equation", b"").decode().replace(" ", "").partition("->")[0].split(",")
    if len(terms) == 1:
        return 0
    if len(terms) > 2 or any("." in term for term in terms):
        raise UncountableError("an Einsum of more than two operands, or with an ellipsis")
    sizes = {
        letter: side
        for term, name in zip(terms, node.input, strict=True)
        for letter, side in zip(term, _known(shapes, name), strict=True)
    }
    return math.prod(sizes.values())


def _recurrent(node: Any, shapes: Shapes) -> int:
    """Every step multiplies by the input weights and the recurrent ones of each direction."""
    steps, batch = _known(shapes, node.input[0])[:2]
    return steps * batch * sum(math.prod(_known(shapes, name)) for name in node.input[1:3])


def _attention(past: int | None) -> Callable[[Any, Shapes], int]:
    """Queries times keys, and their weights times values; tokens are the last dimension but one."""

    def count(node: Any, shapes: Shapes) -> int:
        inputs = [*node.input, "", "", ""]
        if not inputs[1] or not inputs[2]:
            raise UncountableError("attention with its projections packed")
        key = _known(shapes, inputs[1])
        query, value = _known(shapes, inputs[0]), _known(shapes, node.output[0])
        if len(query) != len(key):
            raise UncountableError("attention with its keys and values packed")
        before = _known(shapes, node.input[past])[-2] if past and len(node.input) > past and node.input[past] else 0
        return (math.prod(query) + math.prod(value)) * (key[-2] + before)

    return count


def _projecting_attention(node: Any, shapes: Shapes) -> int:
    """ONNX Runtime's ``Attention``: the projections of (batch, tokens, in) by (in, 3 x out), and the attention."""
    batch, tokens, width = _known(shapes, node.input[0])
    packed = _known(shapes, node.input[1])[1]
    if packed % 3 or _attribute(node, "qkv_hidden_sizes", None) or (len(node.input) > 4 and node.input[4]):
        raise UncountableError("attention of uneven widths, or with a past")
    return batch * tokens * (width * packed + 2 * tokens * packed // 3)


_RUNTIME = "com.microsoft"
_COUNTERS: dict[tuple[str, str], Callable[[Any, Shapes], int]] = {
    **{("", name): _convolution(1) for name in ("Conv", "ConvInteger", "DeformConv")},
    ("", "ConvTranspose"): _transposed_convolution,
    ("", "QLinearConv"): _convolution(3),
    **{("", name): _product for name in ("Gemm", "MatMul", "MatMulInteger", "QLinearMatMul")},
    ("", "Einsum"): _einsum,
    **{("", name): _recurrent for name in ("LSTM", "GRU", "RNN")},
    ("", "Attention"): _attention(4),
    (_RUNTIME, "FusedConv"): _convolution(1),
    **{(_RUNTIME, name): _product for name in ("FusedMatMul", "TransposeMatMul", "FusedGemm", "GemmFastGelu", "QGemm")},
    **{(_RUNTIME, name): _product for name in ("MatMulIntegerToFloat", "DynamicQuantizeMatMul", "MatMulNBits")},
    (_RUNTIME, "MultiHeadAttention"): _attention(6),
    (_RUNTIME, "Attention"): _projecting_attention,
}
# Operators of runtimes that move data or work by element.
_LIGHT = frozenset(
    {
        *("QuantizeLinear", "DequantizeLinear", "Gelu", "FastGelu", "QuickGelu", "BiasGelu", "BiasSplitGelu"),
        *("LayerNormalization", "SimplifiedLayerNormalization", "SkipLayerNormalization", "RotaryEmbedding"),
        *("SkipSimplifiedLayerNormalization", "GroupNorm", "SkipGroupNorm", "BiasSoftmax", "BiasAdd"),
        *("QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearConcat", "QLinearSoftmax"),
        *("QLinearAveragePool", "QLinearGlobalAveragePool", "NhwcMaxPool", "ReorderInput", "ReorderOutput"),
    }
)
# Operators that run a graph within them.
_HOLDING = frozenset({"If", "Loop", "Scan", "SequenceMap"})
# Standard operators that work hard, and not by multiplying and adding in a number that is agreed on.
_UNDEFINED = frozenset({"DFT", "STFT", "Det", "LinearAttention", "CausalConvWithState"})
