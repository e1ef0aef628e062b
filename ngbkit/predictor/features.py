"""What a model sees of a graph: numbers for each operator, and numbers for the whole.

Sizes span ten decades, so that all of them are logarithms, of 1 + size.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ngbkit.predictor.graphs import Graph, Operator

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
"""The kinds of operators that have a column of their own; all others share one."""

_SIZES = ("inputs", "outputs", "weights", "macs", "bytes", "intensity")
_SHAPE = ("batch", "channels", "height", "width", "rank", "values_in", "values_out")
_WINDOW = ("kernel", "stride", "dilation", "groups", "channels_a_group", "out_a_group", "depthwise", "pointwise")
_FIT = ("channels_of_8", "channels_of_16", "out_of_8", "out_of_16")

OPERATOR = (*(f"is_{kind}" for kind in (*KINDS, "other")), *_SIZES, *_SHAPE, *_WINDOW, *_FIT)
"""The columns of `of_operators`."""

_TOTALS = ("operators", "edges", "longest", "inputs", "outputs", "weights", "macs", "bytes")
_BY_KIND = ("count", "macs", "bytes")

WHOLE = (*_TOTALS, *(f"{what}_of_{kind}" for kind in (*KINDS, "other") for what in _BY_KIND))
"""The columns of `of_graph`."""

_PLACE = {kind: at for at, kind in enumerate(KINDS)}


def of_operators(graph: Graph) -> Floats:
    """A row an operator, with the columns `OPERATOR`."""
    rows = [[*_one_hot(one.kind), *_sizes(one), *_shape(one), *_window(one), *_fit(one)] for one in graph.operators]
    return np.array(rows, dtype=np.float32).reshape(len(rows), len(OPERATOR))


def of_graph(graph: Graph) -> Floats:
    """One row, with the columns `WHOLE`."""
    totals = [
        len(graph.operators),
        len(graph.edges),
        max(graph.depths, default=0),
        sum(tensor.size for tensor in graph.inputs),
        sum(tensor.size for tensor in graph.outputs),
        sum(tensor.size for one in graph.operators for tensor in one.weights),
        sum(one.macs or 0 for one in graph.operators),
        sum(one.bytes for one in graph.operators),
    ]
    return np.log1p(np.array([*totals, *amounts(graph.operators)], dtype=np.float64)).astype(np.float32)


def amounts(operators: Sequence[Operator]) -> list[int]:
    """Of each kind how many there are, their operations and the bytes that they move: the last columns of `WHOLE`."""
    count, macs, moved = Counter[str](), Counter[str](), Counter[str]()
    for one in operators:
        kind = one.kind if one.kind in _PLACE else "other"
        count[kind] += 1
        macs[kind] += one.macs or 0
        moved[kind] += one.bytes
    return [each[kind] for kind in (*KINDS, "other") for each in (count, macs, moved)]


def _one_hot(kind: str) -> list[float]:
    row = [0.0] * (len(KINDS) + 1)
    row[_PLACE.get(kind, len(KINDS))] = 1.0
    return row


def _sizes(one: Operator) -> list[float]:
    values = [sum(tensor.size for tensor in some) for some in (one.inputs, one.outputs, one.weights)]
    macs = one.macs or 0
    return [*map(math.log1p, [*values, macs, one.bytes]), math.log1p(macs / one.bytes if one.bytes else 0)]


def _shape(one: Operator) -> list[float]:
    """Of the first output, as (batch, channels, height, width); of tokens, the last dimension is the channels."""
    shape = one.outputs[0].shape or () if one.outputs else ()
    batch, rest = (shape[0], shape[1:]) if shape else (1, ())
    if len(rest) == 3:
        channels, height, width = rest
    else:
        channels, height, width = (rest[-1] if rest else 1), math.prod(rest[:-1]), 1
    return [*map(math.log1p, (batch, channels, height, width)), len(shape), len(one.inputs), len(one.outputs)]


def _window(one: Operator) -> list[float]:
    kernel, stride, dilation = (_mean(one, name) for name in ("kernel_shape", "strides", "dilations"))
    groups = one.attributes.get("group", 1)
    taken, made, groups = _channels(one), _made(one), groups if isinstance(groups, int) else 1
    depthwise = float(groups > 1 and taken == groups)
    pointwise = float(one.kind == "Conv" and kernel == 1)
    return [kernel, stride, dilation, *map(math.log1p, (groups, taken // groups, made // groups)), depthwise, pointwise]


def _fit(one: Operator) -> list[float]:
    """Whether channels fill the registers of a vector unit."""
    return [float(count > 0 and count % lanes == 0) for count in (_channels(one), _made(one)) for lanes in (8, 16)]


def _channels(one: Operator) -> int:
    shape = one.inputs[0].shape if one.inputs else None
    return _of_channels(shape or ())


def _made(one: Operator) -> int:
    shape = one.outputs[0].shape if one.outputs else None
    return _of_channels(shape or ())


def _of_channels(shape: Sequence[int]) -> int:
    if len(shape) < 2:
        return 0
    return shape[1] if len(shape) == 4 else shape[-1]


def _mean(one: Operator, name: str) -> float:
    """Of the two sides of a window; 0 where the operator has none."""
    value = one.attributes.get(name, ())
    sides = [float(side) for side in value] if isinstance(value, tuple) else []
    return sum(sides) / len(sides) if sides else 0.0
