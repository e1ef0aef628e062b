"""The size of an ONNX file, from shapes alone: the bytes of its constants and outputs, and its MACs.

MACs are defined for convolutions, matrix products, ``Einsum``, recurrent layers and attention. Other standard operators
work by element or move data, and count as 0, as in ``torch.utils.flop_counter``. A runtime's own operator that this
module does not know makes the count None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from ngbkit.errors import WorkloadError
from ngbkit.workloads import onnx_inputs, onnx_model
from ngbkit.workloads.base import TensorSpec
from ngbkit.workloads.onnx_binding import bind_shapes
from ngbkit.workloads.onnx_traversal import find_subgraphs, find_tensors, open_negative

Shapes = Mapping[str, tuple[int, ...]]

# A larger constant is weights; a smaller one may be a shape from which others are inferred.
_SHAPE_VALUES = 1024


class UncountableError(Exception):
    """The work of a node is undefined, or depends on an unknown shape."""


def load_without_weights(path: Path) -> Any:
    """Load the inlined `onnx.ModelProto` of a file without its weights; WorkloadError if it is damaged."""
    model = onnx_model.read_graph(path)

    import onnx
    from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data
    from onnx.inliner import inline_local_functions

    for tensor in find_tensors(model.graph):
        if math.prod(tensor.dims) > _SHAPE_VALUES:
            empty = onnx.TensorProto(dims=tensor.dims, data_type=tensor.data_type, name=tensor.name)
            tensor.CopyFrom(empty)
        elif uses_external_data(tensor):
            try:
                load_external_data_for_tensor(tensor, str(path.parent))
            except (OSError, ValueError, onnx.checker.ValidationError) as error:
                raise WorkloadError(f"{path} has invalid external data: {error}. Copy it beside the file.") from error
    try:
        return inline_local_functions(model) if model.functions else model
    except (RuntimeError, onnx.checker.ValidationError) as error:
        raise WorkloadError(f"{path} has functions that cannot be inlined: {error}. Export it again.") from error


def count_parameters(model: Any) -> int:
    """Count the values of a model's constants, except int64 (shapes, indices)."""
    import onnx

    int64 = onnx.TensorProto.INT64
    return sum(math.prod(tensor.dims) for tensor in find_tensors(model.graph) if tensor.data_type != int64)


def count_weight_bytes(model: Any) -> int:
    """Count the bytes of a model's constants as stored, in the file or beside it."""
    return sum(_count_bytes(tensor.dims, tensor.data_type) for tensor in find_tensors(model.graph))


def bind(model: Any, rows: int, inputs: Sequence[TensorSpec] = ()) -> Any:
    """Bind a model to its `inputs`, by default as it describes them, and return its graph with every inferred shape."""
    import onnx

    bound = onnx.ModelProto()
    bound.CopyFrom(model)
    open_negative(bound.graph)
    if not inputs:
        inputs, fixed = onnx_inputs.describe(Path("the network"), bound)
        rows = fixed or rows
    shapes = {spec.name: spec.bind(rows) for spec in inputs if not spec.factors}
    sizes = _find_sizes(bound.graph, shapes)
    bind_shapes(bound.graph, shapes)
    graph = onnx.shape_inference.infer_shapes(bound, data_prop=True).graph
    for output, declared in zip(graph.output, model.graph.output, strict=True):
        _fill_shape(output, declared, sizes)
    return graph


def _find_sizes(graph: Any, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Find the sizes of the symbols of inputs at these shapes."""
    return {
        dimension.dim_param: size
        for value in graph.input
        for dimension, size in zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False)
        if dimension.dim_param
    }


def _fill_shape(output: Any, declared: Any, sizes: Mapping[str, int]) -> None:
    """Fill the open dimensions of an output by the symbols that it declares, on which no feed depends."""
    sides, symbols = output.type.tensor_type.shape.dim, declared.type.tensor_type.shape.dim
    if len(sides) == len(symbols):
        for side, symbol in zip(sides, symbols, strict=True):
            if not side.HasField("dim_value") and symbol.dim_param in sizes:
                side.dim_value = sizes[symbol.dim_param]


def count_output_bytes(graph: Any) -> int:
    """Count the bytes of the outputs of a bound graph; `UncountableError` if the shape of one is unknown."""
    shapes = _find_shapes(graph)
    return sum(_count_bytes(_get_shape(shapes, value.name), value.type.tensor_type.elem_type) for value in graph.output)


def count_macs(graph: Any) -> int:
    """Count the multiply-accumulate operations of a bound graph; `UncountableError` if a node's are unknown."""
    shapes = _find_shapes(graph)
    return sum(count_node_macs(node, shapes) for node in graph.node)


def is_free(domain: str, operator: str) -> bool:
    """Return whether an operator counts as 0 at any shape; one with a subgraph does not."""
    return operator not in _BRANCHING and (domain, operator) not in _COUNTERS and _is_light(domain, operator)


def count_node_macs(node: Any, shapes: Shapes) -> int:
    """Count the multiply-accumulate operations of a node; `UncountableError` if its operator or a shape is unknown."""
    counter = _COUNTERS.get((_get_domain(node), node.op_type))
    if counter is not None:
        return counter(node, shapes)
    if not _is_free_node(node):
        raise UncountableError(f"{node.op_type} of {node.domain or 'onnx'}")
    return 0


def _is_free_node(node: Any) -> bool:
    """Return whether a node and its subgraphs count as 0, however often a branch or a loop runs them."""
    domain, operator = _get_domain(node), node.op_type
    if (domain, operator) in _COUNTERS or not _is_light(domain, operator):
        return False
    return all(_is_free_node(inner) for graph in find_subgraphs(node) for inner in graph.node)


def _is_light(domain: str, operator: str) -> bool:
    is_standard = domain in ("", _BLOCKED) and _is_standard(operator)
    return is_standard or (bool(domain) and operator in _LIGHT)


@cache
def _is_standard(operator: str) -> bool:
    import onnx

    return operator not in _UNDEFINED and bool(onnx.defs.has(operator))


def _get_domain(node: Any) -> str:
    return "" if node.domain == "ai.onnx" else str(node.domain)


def _find_shapes(graph: Any) -> dict[str, tuple[int, ...]]:
    """Find the shapes that are known, by name."""
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        tensor = value.type.tensor_type
        if tensor.HasField("shape") and all(dimension.HasField("dim_value") for dimension in tensor.shape.dim):
            shapes[value.name] = tuple(dimension.dim_value for dimension in tensor.shape.dim)
    return shapes


def _get_shape(shapes: Shapes, name: str) -> tuple[int, ...]:
    if name not in shapes:
        raise UncountableError(f"the shape of {name} is unknown")
    return shapes[name]


def _get_attribute(node: Any, name: str, default: Any) -> Any:
    import onnx

    values = (onnx.helper.get_attribute_value(attribute) for attribute in node.attribute if attribute.name == name)
    return next(values, default)


def _count_bytes(shape: Iterable[int], elem_type: int) -> int:
    import onnx

    type_name = onnx.TensorProto.DataType.Name(elem_type)
    packed = next((bits for name, bits in _PACKED.items() if type_name.endswith(name)), None)
    bits: int = packed or 8 * onnx.helper.tensor_dtype_to_np_dtype(elem_type).itemsize
    return -(-math.prod(shape) * bits // 8)


# Packed types, of which several values share a byte, with the bits of one.
_PACKED = {"INT2": 2, "INT4": 4, "FLOAT4E2M1": 4}


def _count_convolution(node: Any, shapes: Shapes, weight: int = 1) -> int:
    """Count each output times one input channel group and the kernel; weights are (out, in / groups, *kernel)."""
    return math.prod(_get_shape(shapes, node.output[0])) * math.prod(_get_shape(shapes, node.input[weight])[1:])


def _count_transposed_convolution(node: Any, shapes: Shapes) -> int:
    """Count each input times one output channel group and the kernel; weights are (in, out / groups, *kernel)."""
    return math.prod(_get_shape(shapes, node.input[0])) * math.prod(_get_shape(shapes, node.input[1])[1:])


def _count_product(node: Any, shapes: Shapes) -> int:
    """Count each output times the columns of the left matrix, which are the rows of the right one."""
    outputs = math.prod(_get_shape(shapes, node.output[0]))
    left, right = shapes.get(node.input[0]), shapes.get(node.input[1])
    if left is None and right is not None and len(right) == 2 and node.op_type in ("Gemm", "MatMul"):
        return outputs * right[1 if _get_attribute(node, "transB", 0) else 0]
    return outputs * _get_shape(shapes, node.input[0])[-2 if _get_attribute(node, "transA", 0) else -1]


def _count_einsum(node: Any, shapes: Shapes) -> int:
    """Count the product of the sizes of all letters of two operands; one operand is only moved and summed."""
    terms = _get_attribute(node, "equation", b"").decode().replace(" ", "").partition("->")[0].split(",")
    if len(terms) == 1:
        return 0
    if len(terms) > 2 or any("." in term for term in terms):
        raise UncountableError("an Einsum of more than two operands, or with an ellipsis")
    sizes = {
        letter: side
        for term, name in zip(terms, node.input, strict=True)
        for letter, side in zip(term, _get_shape(shapes, name), strict=True)
    }
    return math.prod(sizes.values())


def _count_recurrent(node: Any, shapes: Shapes) -> int:
    """Count each step of the batch times the input weights and the recurrent ones of each direction."""
    steps, batch = _get_shape(shapes, node.input[0])[:2]
    return steps * batch * sum(math.prod(_get_shape(shapes, name)) for name in node.input[1:3])


def _count_attention(node: Any, shapes: Shapes, past: int) -> int:
    """Count queries times keys, and their weights times values; tokens are the second-last dimension."""
    inputs = [*node.input, "", "", ""]
    if not inputs[1] or not inputs[2]:
        raise UncountableError("attention with its projections packed")
    key = _get_shape(shapes, inputs[1])
    query, value = _get_shape(shapes, inputs[0]), _get_shape(shapes, node.output[0])
    if len(query) != len(key):
        raise UncountableError("attention with its keys and values packed")
    cached = _get_shape(shapes, node.input[past])[-2] if len(node.input) > past and node.input[past] else 0
    return (math.prod(query) + math.prod(value)) * (key[-2] + cached)


def _count_projecting_attention(node: Any, shapes: Shapes) -> int:
    """Count ONNX Runtime's ``Attention``: projections of (batch, tokens, in) by (in, 3 x out), and the attention."""
    batch, tokens, width = _get_shape(shapes, node.input[0])
    packed = _get_shape(shapes, node.input[1])[1]
    if packed % 3 or _get_attribute(node, "qkv_hidden_sizes", None) or (len(node.input) > 4 and node.input[4]):
        raise UncountableError("attention of uneven widths, or with a past")
    return batch * tokens * (width * packed + 2 * tokens * packed // 3)


_RUNTIME = "com.microsoft"
# ONNX Runtime's operators on channels in blocks, which keep their names.
_BLOCKED = "com.microsoft.nchwc"
_COUNTERS: dict[tuple[str, str], Callable[[Any, Shapes], int]] = {
    **{("", name): _count_convolution for name in ("Conv", "ConvInteger", "DeformConv")},
    ("", "ConvTranspose"): _count_transposed_convolution,
    ("", "QLinearConv"): partial(_count_convolution, weight=3),
    **{("", name): _count_product for name in ("Gemm", "MatMul", "MatMulInteger", "QLinearMatMul")},
    ("", "Einsum"): _count_einsum,
    **{("", name): _count_recurrent for name in ("LSTM", "GRU", "RNN")},
    ("", "Attention"): partial(_count_attention, past=4),
    (_RUNTIME, "FusedConv"): _count_convolution,
    (_BLOCKED, "Conv"): _count_convolution,
    **{(_RUNTIME, name): _count_product for name in ("FusedMatMul", "TransposeMatMul", "FusedGemm", "GemmFastGelu")},
    **{(_RUNTIME, name): _count_product for name in ("MatMulIntegerToFloat", "DynamicQuantizeMatMul", "MatMulNBits")},
    (_RUNTIME, "QGemm"): _count_product,
    (_RUNTIME, "MultiHeadAttention"): partial(_count_attention, past=6),
    (_RUNTIME, "Attention"): _count_projecting_attention,
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
# Operators with subgraphs.
_BRANCHING = frozenset({"If", "Loop", "Scan", "SequenceMap"})
# Standard operators with much work that has no agreed number of multiplications and additions.
_UNDEFINED = frozenset({"DFT", "STFT", "Det", "LinearAttention", "CausalConvWithState"})
