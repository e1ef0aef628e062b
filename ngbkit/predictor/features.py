"""The features of a graph that models are fitted to: numbers of each operator, and numbers of the whole graph.

Sizes span ten decades, so that all of them are logarithms of 1 + size.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ngbkit.predictor.graphs import Graph, Operator, Tensor

Floats = NDArray[np.float32]

KINDS = (
    *("Conv", "ConvTranspose", "Gemm", "MatMul", "Einsum", "Attention"),
    *("Relu", "Clip", "LeakyRelu", "Sigmoid", "HardSigmoid", "HardSwish", "Gelu", "Erf", "Tanh", "Elu", "Softmax"),
    *("BatchNormalization", "LayerNormalization", "InstanceNormalization", "GroupNormalization", "LpNormalization"),
    *("Add", "Sub", "Mul", "Div", "Pow", "Sqrt", "Exp", "Where", "Neg", "Reciprocal", "Max", "Min"),
    *("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "ReduceMean", "ReduceSum", "ReduceMax"),
    *("Concat", "Split", "Slice", "Gather", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Pad"),
    *("Resize", "Cast", "Tile", "DepthToSpace", "SpaceToDepth", "Identity"),
)
"""The kinds of operators with a column each; all others share one."""

_SIZES = ("inputs", "outputs", "weights", "macs", "bytes", "intensity")
_SHAPE = ("batch", "channels", "height", "width", "rank", "values_in", "values_out")
_WINDOW = ("kernel", "stride", "dilation", "groups", "channels_a_group", "out_a_group", "depthwise", "pointwise")
_FIT = ("channels_of_8", "channels_of_16", "out_of_8", "out_of_16")

OPERATOR = (*(f"is_{kind}" for kind in (*KINDS, "other")), *_SIZES, *_SHAPE, *_WINDOW, *_FIT)
"""The columns of `encode_operators`."""

_TOTALS = ("operators", "edges", "longest", "inputs", "outputs", "weights", "macs", "bytes")
_BY_KIND = ("count", "macs", "bytes")

WHOLE = (*_TOTALS, *(f"{amount}_of_{kind}" for kind in (*KINDS, "other") for amount in _BY_KIND))
"""The columns of `encode_graph`."""

_INDEX = {kind: index for index, kind in enumerate(KINDS)}


def encode_operators(graph: Graph) -> Floats:
    """Return a row per operator, with the columns `OPERATOR`."""
    rows = [
        [
            *_encode_kind(operator.kind),
            *_encode_sizes(operator),
            *_encode_shape(operator),
            *_encode_window(operator),
            *_encode_fit(operator),
        ]
        for operator in graph.operators
    ]
    return np.array(rows, dtype=np.float32).reshape(len(rows), len(OPERATOR))


def encode_graph(graph: Graph) -> Floats:
    """Return one row, with the columns `WHOLE`."""
    totals = [
        len(graph.operators),
        len(graph.edges),
        max(graph.depths, default=0),
        sum(tensor.size for tensor in graph.inputs),
        sum(tensor.size for tensor in graph.outputs),
        sum(tensor.size for operator in graph.operators for tensor in operator.weights),
        sum(operator.macs or 0 for operator in graph.operators),
        sum(operator.bytes for operator in graph.operators),
    ]
    return np.log1p(np.array([*totals, *sum_amounts(graph.operators)], dtype=np.float64)).astype(np.float32)


def sum_amounts(operators: Sequence[Operator]) -> list[int]:
    """Return the count, the operations and the moved bytes of each kind of operator: the last columns of `WHOLE`."""
    count, macs, moved = Counter[str](), Counter[str](), Counter[str]()
    for operator in operators:
        kind = operator.kind if operator.kind in _INDEX else "other"
        count[kind] += 1
        macs[kind] += operator.macs or 0
        moved[kind] += operator.bytes
    return [totals[kind] for kind in (*KINDS, "other") for totals in (count, macs, moved)]


def _encode_kind(kind: str) -> list[float]:
    row = [0.0] * (len(KINDS) + 1)
    row[_INDEX.get(kind, len(KINDS))] = 1.0
    return row


def _encode_sizes(operator: Operator) -> list[float]:
    values = [
        sum(tensor.size for tensor in tensors) for tensors in (operator.inputs, operator.outputs, operator.weights)
    ]
    macs = operator.macs or 0
    return [
        *map(math.log1p, [*values, macs, operator.bytes]),
        math.log1p(macs / operator.bytes if operator.bytes else 0),
    ]


def _encode_shape(operator: Operator) -> list[float]:
    """Encode the first output as (batch, channels, height, width); the last dimension of tokens is the channels."""
    shape = operator.outputs[0].shape or () if operator.outputs else ()
    batch, rest = (shape[0], shape[1:]) if shape else (1, ())
    if len(rest) == 3:
        channels, height, width = rest
    else:
        channels, height, width = (rest[-1] if rest else 1), math.prod(rest[:-1]), 1
    return [*map(math.log1p, (batch, channels, height, width)), len(shape), len(operator.inputs), len(operator.outputs)]


def _encode_window(operator: Operator) -> list[float]:
    kernel, stride, dilation = (_compute_mean(operator, name) for name in ("kernel_shape", "strides", "dilations"))
    groups = operator.attributes.get("group", 1)
    groups = groups if isinstance(groups, int) else 1
    inputs, outputs = _count_channels(operator.inputs), _count_channels(operator.outputs)
    depthwise = float(groups > 1 and inputs == groups)
    pointwise = float(operator.kind == "Conv" and kernel == 1)
    return [
        kernel,
        stride,
        dilation,
        *map(math.log1p, (groups, inputs // groups, outputs // groups)),
        depthwise,
        pointwise,
    ]


def _encode_fit(operator: Operator) -> list[float]:
    """Encode whether the channels fill the registers of a vector unit."""
    return [
        float(count > 0 and count % lanes == 0)
        for count in map(_count_channels, (operator.inputs, operator.outputs))
        for lanes in (8, 16)
    ]


def _count_channels(tensors: Sequence[Tensor]) -> int:
    """Return the channels of the first of these tensors; 0 if it has none."""
    shape = (tensors[0].shape or ()) if tensors else ()
    if len(shape) < 2:
        return 0
    return shape[1] if len(shape) == 4 else shape[-1]


def _compute_mean(operator: Operator, name: str) -> float:
    """Return the mean of the sides of a window; 0 if the operator has none."""
    value = operator.attributes.get(name, ())
    sides = [float(side) for side in value] if isinstance(value, tuple) else []
    return sum(sides) / len(sides) if sides else 0.0
