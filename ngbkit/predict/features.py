"""The features of a graph that models are fitted to: numbers of each operator, and numbers of the whole graph.

Sizes span ten decades, so that all of them are logarithms of 1 + size.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ngbkit.predict.graphs import Attribute, Graph, Operator, Tensor

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

_LANES = (8, 16)
CONVOLUTIONS = ("Conv", "PointwiseConv", "GroupedConv", "DepthwiseConv")
"""The kernels that runtimes have for convolutions."""

_BLOCKED = (*CONVOLUTIONS, "AveragePool", "MaxPool")
_RAGGED = tuple(f"{kind}_not_of_{lanes}" for kind in _BLOCKED for lanes in _LANES)

PRICED = (*KINDS, "other", *_RAGGED)
"""The classes of operators, with a price for each: the kinds, and kinds whose channels leave vector registers unfilled.

Runtimes keep channels in blocks of a register, and take slower kernels where a number of channels is no multiple of
that; so such an operator pays the prices of its kind and these on top.
"""

_HEAVY = ("Conv", "ConvTranspose", "Gemm", "MatMul", "Einsum", "Attention")

MOVEMENT = tuple(kind for kind in (*KINDS, "other") if kind not in _HEAVY)
"""The kinds that move data or work by element: what they cost depends on their bytes."""

_SIZES = ("inputs", "outputs", "weights", "macs", "bytes", "intensity")
_SHAPE = ("batch", "channels", "height", "width", "rank", "values_in", "values_out")
_WINDOW = ("kernel", "stride", "dilation", "groups", "channels_a_group", "out_a_group", "depthwise", "pointwise")
_FIT = ("channels_of_8", "channels_of_16", "out_of_8", "out_of_16")

OPERATOR = (*(f"is_{name}" for name in PRICED), *_SIZES, *_SHAPE, *_WINDOW, *_FIT)
"""The columns of `Features.operators`."""

_TOTALS = ("operators", "edges", "longest", "inputs", "outputs", "weights", "macs", "bytes")
_AMOUNTS = ("count", "macs", "bytes")

WHOLE = (*_TOTALS, *(f"{amount}_of_{name}" for name in PRICED for amount in _AMOUNTS))
"""The columns of `encode_graph`."""

_INDEX = {name: index for index, name in enumerate(PRICED)}
# Operators that ONNX Runtime fuses: the activation in a convolution costs next to nothing, and a sum is one more input.
_FUSED = {
    **dict.fromkeys(("FusedConv", "NhwcFusedConv"), "Conv"),
    **dict.fromkeys(("FusedMatMul", "TransposeMatMul", "MatMulNBits"), "MatMul"),
    **dict.fromkeys(("FusedGemm", "GemmFastGelu"), "Gemm"),
    **dict.fromkeys(("Gelu", "FastGelu", "QuickGelu", "BiasGelu", "BiasSplitGelu"), "Gelu"),
    **dict.fromkeys(("SkipLayerNormalization", "SimplifiedLayerNormalization"), "LayerNormalization"),
    **dict.fromkeys(("MultiHeadAttention", "Attention"), "Attention"),
    "BiasSoftmax": "Softmax",
    "BiasAdd": "Add",
}
_STANDARD = {f"com.microsoft.{fused}": kind for fused, kind in _FUSED.items()}
# Those that work on channels in blocks keep their names.
_STANDARD |= {f"com.microsoft.nchwc.{kind}": kind for kind in KINDS}
_STANDARD |= dict.fromkeys(("com.microsoft.nchwc.ReorderInput", "com.microsoft.nchwc.ReorderOutput"), "Transpose")
# Layers of OpenVINO that no operator of the file is named after: a `Subgraph` works by element.
_STANDARD |= {f"openvino.{kind}": kind for kind in KINDS}
_STANDARD |= {
    **dict.fromkeys(("openvino.Subgraph", "openvino.Eltwise"), "Mul"),
    **{"openvino.Reorder": "Transpose", "openvino.MVN": "LayerNormalization", "openvino.FullyConnected": "Gemm"},
    **{"openvino.Concatenation": "Concat", "openvino.Convert": "Cast", "openvino.StridedSlice": "Slice"},
}
# The attributes that features depend on.
_WINDOWS = ("kernel_shape", "strides", "dilations")
_ATTRIBUTES = (*_WINDOWS, "group")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The features of an operator for a model: its row with the columns `OPERATOR`, a hash of it, and its amounts."""

    row: Floats
    code: int
    priced: tuple[int, ...]
    macs: int
    bytes: int
    weights: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """The features of a graph: `operators` and their hashes `codes` have a row per operator; `totals` is one row."""

    operators: Floats
    codes: NDArray[np.uint64]
    totals: Floats


def encode(graph: Graph) -> Features:
    """Return all features of a graph."""
    works = [_encode_work(operator) for operator in graph.operators]
    rows = [work.row for work in works]
    return Features(
        operators=np.array(rows, dtype=np.float32).reshape(len(rows), len(OPERATOR)),
        codes=np.array([work.code for work in works], dtype=np.uint64),
        totals=_encode_totals(graph, works),
    )


def encode_graph(graph: Graph) -> Floats:
    """Return one row, with the columns `WHOLE`."""
    if "whole" not in graph.encodings:
        works = [_encode_work(operator) for operator in graph.operators]
        graph.encodings["whole"] = _encode_totals(graph, works)
    row: Floats = graph.encodings["whole"]
    return row


def encode_amounts(graph: Graph) -> NDArray[np.float64]:
    """Return the sums of the amounts of the graph: see `sum_amounts`."""
    if "amounts" not in graph.encodings:
        graph.encodings["amounts"] = sum_amounts(graph.operators)
    row: NDArray[np.float64] = graph.encodings["amounts"]
    return row


def sum_amounts(operators: Sequence[Operator]) -> NDArray[np.float64]:
    """Return the count, the operations and the moved bytes of all that is `PRICED`: the last columns of `WHOLE`."""
    return _sum_works([_encode_work(operator) for operator in operators])


def list_priced(operator: Operator) -> list[str]:
    """Return what an operator is, as names in `PRICED`; its kind is one of ONNX's."""
    kind = operator.kind if operator.kind in KINDS else "other"
    kernel = name_kernel(operator)
    if kernel not in _BLOCKED:
        return [kind]
    groups = _count_groups(operator) if kernel == "GroupedConv" else 1
    inputs, outputs = (_count_channels(tensors) // groups for tensors in (operator.inputs, operator.outputs))
    # Of fewer channels than a register has lanes, such as colours, the input may keep its own layout.
    ragged = [lanes for lanes in _LANES if outputs % lanes or (inputs % lanes and inputs > lanes)]
    return [kind, *(f"{kernel}_not_of_{lanes}" for lanes in ragged)]


def _encode_totals(graph: Graph, works: Sequence[Work]) -> Floats:
    totals = [
        len(graph.operators),
        len(graph.edges),
        max(graph.depths, default=0),
        sum(tensor.size for tensor in graph.inputs),
        sum(tensor.size for tensor in graph.outputs),
        sum(work.weights for work in works),
        sum(work.macs for work in works),
        sum(work.bytes for work in works),
    ]
    values = np.concatenate([np.array(totals, dtype=np.float64), _sum_works(works)])
    logs: NDArray[np.float32] = np.log1p(values).astype(np.float32)
    return logs


def _sum_works(works: Sequence[Work]) -> NDArray[np.float64]:
    sums = np.zeros((len(PRICED), len(_AMOUNTS)))
    priced = [(index, work) for work in works for index in work.priced]
    amounts = [(1, work.macs, work.bytes) for _, work in priced]
    np.add.at(sums, [index for index, _ in priced], np.array(amounts, dtype=np.float64).reshape(-1, len(_AMOUNTS)))
    return sums.ravel()


def _encode_work(operator: Operator) -> Work:
    attributes = tuple(operator.attributes.get(name) for name in _ATTRIBUTES)
    return _encode_once(operator.kind, operator.inputs, operator.outputs, operator.weights, attributes, operator.macs)


# A network repeats its operators, and its variants share them.
@lru_cache(maxsize=16_384)
def _encode_once(
    kind: str,
    inputs: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
    weights: tuple[Tensor, ...],
    attributes: tuple[Attribute | None, ...],
    macs: int | None,
) -> Work:
    kind = _STANDARD.get(kind, kind)
    window = {name: value for name, value in zip(_ATTRIBUTES, attributes, strict=True) if value is not None}
    operator = Operator(
        name="", kind=kind, inputs=inputs, outputs=outputs, weights=weights, attributes=window, macs=macs
    )
    priced = tuple(_INDEX[name] for name in list_priced(operator))
    parts = (
        [float(index in priced) for index in range(len(PRICED))],
        _encode_sizes(operator),
        _encode_shape(operator),
        _encode_window(operator),
        _encode_fit(operator),
    )
    row = np.array([number for part in parts for number in part], dtype=np.float32)
    row.setflags(write=False)  # it is shared
    return Work(
        row=row,
        code=int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=8).digest(), "little"),
        priced=priced,
        macs=macs or 0,
        bytes=operator.bytes,
        weights=sum(tensor.size for tensor in weights),
    )


def name_kernel(operator: Operator) -> str:
    """Return the kind by ONNX's name, or for a convolution which of `CONVOLUTIONS` runtimes have kernels for."""
    kind = _STANDARD.get(operator.kind, operator.kind)
    if kind != "Conv":
        return kind
    groups = _count_groups(operator)
    if groups > 1:
        return "DepthwiseConv" if _count_channels(operator.inputs) == groups else "GroupedConv"
    return "PointwiseConv" if _compute_mean(operator, "kernel_shape") == 1 else "Conv"


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
    kernel, stride, dilation = (_compute_mean(operator, name) for name in _WINDOWS)
    groups = _count_groups(operator)
    inputs, outputs = _count_channels(operator.inputs), _count_channels(operator.outputs)
    name = name_kernel(operator)
    return [
        kernel,
        stride,
        dilation,
        *map(math.log1p, (groups, inputs // groups, outputs // groups)),
        float(name == "DepthwiseConv"),
        float(name == "PointwiseConv"),
    ]


def _encode_fit(operator: Operator) -> list[float]:
    """Encode whether the channels fill the registers of a vector unit."""
    return [
        float(count > 0 and count % lanes == 0)
        for count in map(_count_channels, (operator.inputs, operator.outputs))
        for lanes in _LANES
    ]


def _count_channels(tensors: Sequence[Tensor]) -> int:
    """Return the channels of the first of these tensors; 0 if it has none."""
    shape = (tensors[0].shape or ()) if tensors else ()
    if len(shape) < 2:
        return 0
    return shape[1] if len(shape) == 4 else shape[-1]


def _count_groups(operator: Operator) -> int:
    groups = operator.attributes.get("group", 1)
    return groups if isinstance(groups, int) else 1


def _compute_mean(operator: Operator, name: str) -> float:
    """Return the mean of the sides of a window; 0 if the operator has none."""
    value = operator.attributes.get(name, ())
    sides = [float(side) for side in value] if isinstance(value, tuple) else []
    return sum(sides) / len(sides) if sides else 0.0
