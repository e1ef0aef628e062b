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
    pad_kernel,
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


def _find_pointwise(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """Find a 1x1 beside a 3x3 of the same value, so that both can be merged."""
    by_value: dict[ir.Value, list[Convolution]] = {}
    for conv in find_convolutions(graph):
        if conv.group == 1 and is_centred(conv):
            by_value.setdefault(conv.source, []).append(conv)
    for members in by_value.values():
        for conv in members:
            if conv.kernel == (1, 1) and any(
                other.kernel == (3, 3) and other.strides == conv.strides for other in members
            ):
                yield (conv.node,)


def _enlarge(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    conv = _read(nodes)
    result = add_convolution(
        edit, conv.node, conv.source, pad_kernel(conv.weight, (3, 3)), conv.bias, (1, 1, 1, 1), **conv.window
    )
    edit.replace(conv.output, result)


def _merge_groups(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    conv = _read(nodes)
    out, inner = conv.weight.shape[:2]
    each = out // conv.group
    weight = np.zeros((out, 2 * inner, *conv.kernel), conv.weight.dtype)
    for group in range(conv.group):
        rows, first = slice(group * each, (group + 1) * each), (group % 2) * inner
        weight[rows, first : first + inner] = conv.weight[rows]
    window = conv.window | {"group": conv.group // 2}
    edit.replace(conv.output, add_convolution(edit, conv.node, conv.source, weight, conv.bias, conv.pads, **window))


def _is_block_diagonal(conv: Convolution) -> bool:
    """Return whether the weights connect each half of a group's inputs to one half of its outputs."""
    out, inner = conv.weight.shape[:2]
    each = out // conv.group
    for group in range(conv.group):
        rows = conv.weight[group * each : (group + 1) * each]
        if rows[: each // 2, inner // 2 :].any() or rows[each // 2 :, : inner // 2].any():
            return False
    return not (inner % 2 or each % 2)


def _split_groups(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    conv = _read(nodes)
    out, inner = conv.weight.shape[:2]
    half, each = inner // 2, out // conv.group
    weight = np.empty((out, half, *conv.kernel), conv.weight.dtype)
    for group in range(2 * conv.group):
        rows = slice(group * each // 2, (group + 1) * each // 2)
        first = (group % 2) * half
        weight[rows] = conv.weight[rows, first : first + half]
    window = conv.window | {"group": 2 * conv.group}
    edit.replace(conv.output, add_convolution(edit, conv.node, conv.source, weight, conv.bias, conv.pads, **window))


def _find_average(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """Find mean pooling with the same divisor everywhere."""
    for node in graph:
        if (
            not is_kind(node, "AveragePool")
            or read_attribute(node, "ceil_mode", 0)
            or len(read_shape(node.inputs[0]) or ()) != 4
        ):
            continue
        padded = any(read_attribute(node, "pads", (0,)))
        plain = read_attribute(node, "auto_pad", "NOTSET") == "NOTSET" and set(
            read_attribute(node, "dilations", (1,))
        ) == {1}
        if plain and (not padded or read_attribute(node, "count_include_pad", 0)):
            yield (node,)


def _average_to_depthwise(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    (node,) = nodes
    source = node.inputs[0]
    sides, kernel = read_shape(source), read_attribute(node, "kernel_shape")
    assert source is not None
    assert sides is not None
    dtype = source.dtype.numpy() if source.dtype is not None else np.dtype(np.float32)
    weight = np.full((sides[1], 1, *kernel), 1 / np.prod(kernel), dtype)
    window = {"strides": list(read_attribute(node, "strides", (1, 1))), "dilations": [1, 1], "group": sides[1]}
    pads = read_attribute(node, "pads", (0, 0, 0, 0))
    edit.replace(node.outputs[0], add_convolution(edit, node, source, weight, None, pads, **window))


def _is_mean(conv: Convolution) -> bool:
    is_depthwise = conv.group > 1 and conv.weight.shape[:2] == (conv.group, 1) and conv.dilations == (1, 1)
    is_flat = is_depthwise and np.allclose(conv.weight, 1 / np.prod(conv.kernel), rtol=1e-6)
    return bool(is_flat and not np.any(conv.dense_bias))


def _depthwise_to_average(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    conv = _read(nodes)
    window = {"kernel_shape": list(conv.kernel), "strides": list(conv.strides), "pads": list(conv.pads)}
    edit.replace(conv.output, edit.compute(conv.node, "AveragePool", conv.source, count_include_pad=1, **window))


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
# A depthwise convolution would only waste work.
_find_grouped = _select(lambda conv: conv.group > 1 and conv.group % 2 == 0 and conv.weight.shape[1] > 1)
_find_blocks, _find_means = _select(_is_block_diagonal), _select(_is_mean)

OPPOSITES = [
    Rule(name=name, summary=summary, find=find, rewrite=rewrite)
    for name, summary, find, rewrite in (
        ("unfold-batchnorm", "scales and bias of a convolution into a BatchNorm", _find_biased, _unfold_batchnorm),
        ("split-conv", "a convolution into one for each half of its channels", _find_wide, _split_channels),
        ("split-branch", "the middle of a window into a convolution of its own", _find_centred, _split_branch),
        ("enlarge-conv", "a 1x1 beside a 3x3 into a 3x3", _find_pointwise, _enlarge),
        ("merge-groups", "the groups of a convolution two by two", _find_grouped, _merge_groups),
        ("split-groups", "weights in blocks into twice as many groups", _find_blocks, _split_groups),
        ("average-to-depthwise", "mean pooling into a depthwise convolution", _find_average, _average_to_depthwise),
        (
            "depthwise-to-average",
            "a depthwise convolution of means into pooling",
            _find_means,
            _depthwise_to_average,
        ),
        ("split-matmul", "a matrix product into one for each half of its columns", _find_wide_product, _split),
        ("unfuse-hardswish", "HardSwish into a product with a hard sigmoid", _find_hard_swish, _unfuse_hard_swish),
        ("unfuse-gelu", "GELU into its error function", _find_gelu, _unfuse_gelu),
        ("unfuse-layernorm", "LayerNorm into means, differences and a root", _find_layer_norm, _unfuse_layer_norm),
    )
]

ALL_RULES = {**RULES, **{rule.name: rule for rule in OPPOSITES}}
