"""Rules that make no network cheaper: for labels of rewritten networks, and as traps of cost models.

Each of the 18 networks of the gallery on portability that was surely faster was so without them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import onnx_ir as ir

from ngbkit.predict.optimizer.editing import Edit, is_kind, read_attribute, read_constant, read_shape
from ngbkit.predict.optimizer.rules import RULES, Rule
from ngbkit.predict.optimizer.rules.convolution import (
    Convolution,
    add_convolution,
    find_convolutions,
    is_centred,
    read_convolution,
)

# The fewest channels and columns in each half, below which a split only adds calls.
_LEAST_CHANNELS, _LEAST_COLUMNS = 8, 16
# From this opset on, the axes of a mean are an input and not an attribute.
_REDUCE_BY_INPUT = 18


def _select(condition: Callable[[Convolution], bool]) -> Callable[[ir.Graph], Iterator[Sequence[ir.Node]]]:
    """Build the function that finds convolutions of which a condition is true."""
    return lambda graph: ((conv.node,) for conv in find_convolutions(graph) if condition(conv))


def _read(nodes: Sequence[ir.Node]) -> Convolution:
    conv = read_convolution(nodes[0])
    assert conv is not None
    return conv


def _unfold_batchnorm(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    """Move the scales of the channels and the bias into a BatchNorm."""
    conv = _read(nodes)
    scale = np.sqrt((conv.weight.astype(np.float64) ** 2).mean(axis=(1, 2, 3)))
    scale = np.where(scale > 0, scale, 1.0)
    weight = (conv.weight / scale[:, None, None, None]).astype(conv.weight.dtype)
    product = add_convolution(edit, conv.node, conv.source, weight, None, conv.pads, **conv.window)
    channels, dtype = len(weight), conv.weight.dtype
    numbers = [scale, conv.dense_bias, np.zeros(channels), np.ones(channels)]
    constants = [edit.add_constant(np.asarray(values).astype(dtype), conv.node) for values in numbers]
    edit.replace(conv.output, edit.compute(conv.node, "BatchNormalization", product, *constants, epsilon=0.0))


def _split_channels(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    conv = _read(nodes)
    half = len(conv.weight) // 2
    parts = []
    for span in (slice(0, half), slice(half, None)):
        bias = None if conv.bias is None else conv.bias[span]
        parts.append(add_convolution(edit, conv.node, conv.source, conv.weight[span], bias, conv.pads, **conv.window))
    edit.replace(conv.output, edit.compute(conv.node, "Concat", *parts, axis=1))


def _split_branch(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    """Move the middle of the window into a convolution of its own."""
    conv = _read(nodes)
    height, width = conv.kernel
    middle = conv.weight[:, :, height // 2, width // 2][:, :, None, None]
    rest = conv.weight.copy()
    rest[:, :, height // 2, width // 2] = 0
    wide = add_convolution(edit, conv.node, conv.source, rest, conv.bias, conv.pads, **conv.window)
    narrow = add_convolution(edit, conv.node, conv.source, middle, None, (0, 0, 0, 0), **conv.window)
    edit.replace(conv.output, edit.compute(conv.node, "Add", wide, narrow))


def _find_wide_product(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    for node in graph:
        weight = read_constant(node.inputs[1]) if is_kind(node, "MatMul") else None
        if weight is not None and weight.ndim == 2 and weight.shape[1] >= 2 * _LEAST_COLUMNS:
            yield (node,)


def _split(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    (node,) = nodes
    weight = read_constant(node.inputs[1])
    assert weight is not None
    half = weight.shape[1] // 2
    parts = [
        edit.compute(node, "MatMul", node.inputs[0], edit.add_constant(columns, node))
        for columns in (weight[:, :half], weight[:, half:])
    ]
    edit.replace(node.outputs[0], edit.compute(node, "Concat", *parts, axis=-1))


def _find_hard_swish(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    return ((node,) for node in graph if is_kind(node, "HardSwish"))


def _unfuse_hard_swish(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    (node,) = nodes
    gate = edit.compute(node, "HardSigmoid", node.inputs[0], alpha=1 / 6, beta=0.5)
    edit.replace(node.outputs[0], edit.compute(node, "Mul", node.inputs[0], gate))


def _find_gelu(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    return (
        (node,) for node in graph if is_kind(node, "Gelu") and read_attribute(node, "approximate", "none") == "none"
    )


def _unfuse_gelu(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    (node,) = nodes
    source = node.inputs[0]
    root, unit, half = (edit.add_constant(_build_scalar(source, number), node) for number in (math.sqrt(2), 1.0, 0.5))
    part = edit.compute(node, "Erf", edit.compute(node, "Div", source, root))
    doubled = edit.compute(node, "Mul", source, edit.compute(node, "Add", part, unit))
    edit.replace(node.outputs[0], edit.compute(node, "Mul", doubled, half))


def _find_layer_norm(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    for node in graph:
        sides = read_shape(node.inputs[0]) if is_kind(node, "LayerNormalization") and node.inputs else None
        if sides is not None and len(node.outputs) == 1 and read_attribute(node, "axis", -1) in (-1, len(sides) - 1):
            yield (node,)


def _unfuse_layer_norm(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    (node,) = nodes
    source, *affine = node.inputs
    epsilon = edit.add_constant(_build_scalar(source, read_attribute(node, "epsilon", 1e-5)), node)
    difference = edit.compute(node, "Sub", source, _add_mean(edit, node, source))
    variance = _add_mean(edit, node, edit.compute(node, "Mul", difference, difference))
    result = edit.compute(
        node, "Div", difference, edit.compute(node, "Sqrt", edit.compute(node, "Add", variance, epsilon))
    )
    for kind, value in zip(("Mul", "Add"), affine, strict=False):
        if value is not None:
            result = edit.compute(node, kind, result, value)
    edit.replace(node.outputs[0], result)


def _add_mean(edit: Edit, node: ir.Node, value: ir.Value | None) -> ir.Value:
    """Add the mean over the last dimension, which is kept."""
    if edit.graph.opset_imports.get("", 0) >= _REDUCE_BY_INPUT:
        return edit.compute(node, "ReduceMean", value, edit.add_constant(np.array([-1], np.int64), node), keepdims=1)
    return edit.compute(node, "ReduceMean", value, axes=[-1], keepdims=1)


def _build_scalar(value: ir.Value | None, number: float) -> np.ndarray:
    """Build a number of the dtype of a value."""
    kind = value.dtype.numpy() if value is not None and value.dtype is not None else np.dtype(np.float32)
    return np.array(number, kind)


_find_biased = _select(lambda conv: conv.bias is not None)
_find_wide = _select(lambda conv: conv.group == 1 and len(conv.weight) >= 2 * _LEAST_CHANNELS)
_find_centred = _select(lambda conv: is_centred(conv) and min(conv.kernel) > 1)

OPPOSITES = [
    Rule(name=name, summary=summary, find=find, rewrite=rewrite)
    for name, summary, find, rewrite in (
        ("unfold-batchnorm", "scales and bias of a convolution into a BatchNorm", _find_biased, _unfold_batchnorm),
        ("split-conv", "a convolution into one for each half of its channels", _find_wide, _split_channels),
        ("split-branch", "the middle of a window into a convolution of its own", _find_centred, _split_branch),
        ("split-matmul", "a matrix product into one for each half of its columns", _find_wide_product, _split),
        ("unfuse-hardswish", "HardSwish into a product with a hard sigmoid", _find_hard_swish, _unfuse_hard_swish),
        ("unfuse-gelu", "GELU into its error function", _find_gelu, _unfuse_gelu),
        ("unfuse-layernorm", "LayerNorm into means, differences and a root", _find_layer_norm, _unfuse_layer_norm),
    )
]

ALL_RULES = {**RULES, **{rule.name: rule for rule in OPPOSITES}}
