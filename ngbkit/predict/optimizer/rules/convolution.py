"""Convolutions: reads and adds one; folds a BatchNorm into one, merges several, and shrinks one that is mostly zero."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from ngbkit.predict.optimizer.editing import Edit, find_only_user, find_producer, is_kind, read_attribute, read_constant
from ngbkit.predict.optimizer.rules.base import Rule

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """A convolution of images with constant weights, with every default filled in."""

    node: ir.Node
    source: ir.Value
    weight: Array
    bias: Array | None
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    group: int

    @property
    def output(self) -> ir.Value:
        return self.node.outputs[0]

    @property
    def kernel(self) -> tuple[int, int]:
        return int(self.weight.shape[2]), int(self.weight.shape[3])

    @property
    def window(self) -> dict[str, Any]:
        """The attributes other than the kernel and its padding."""
        return {"strides": list(self.strides), "dilations": list(self.dilations), "group": self.group}

    @property
    def dense_bias(self) -> Array:
        """The bias, or zeros without one."""
        return np.zeros(len(self.weight), self.weight.dtype) if self.bias is None else self.bias


def read_convolution(node: ir.Node | None) -> Convolution | None:
    """Read a node as a convolution; None for any other node, or if its weights are not constant."""
    if node is None or not is_kind(node, "Conv") or read_attribute(node, "auto_pad", "NOTSET") != "NOTSET":
        return None
    weight = read_constant(node.inputs[1])
    biased = len(node.inputs) > 2 and node.inputs[2] is not None
    bias = read_constant(node.inputs[2]) if biased else None
    if node.inputs[0] is None or weight is None or weight.ndim != 4 or (biased and bias is None):
        return None
    return Convolution(
        node=node,
        source=node.inputs[0],
        weight=weight,
        bias=bias,
        strides=read_attribute(node, "strides", (1, 1)),
        pads=read_attribute(node, "pads", (0, 0, 0, 0)),
        dilations=read_attribute(node, "dilations", (1, 1)),
        group=read_attribute(node, "group", 1),
    )


def add_convolution(
    edit: Edit,
    successor: ir.Node,
    source: ir.Value,
    weight: Array,
    bias: Array | None,
    pads: Sequence[int],
    **window: Any,
) -> ir.Value:
    """Add a convolution before a node, and return its output."""
    inputs = [source, edit.add_constant(weight, successor)]
    if bias is not None:
        inputs.append(edit.add_constant(bias.astype(weight.dtype), successor))
    return edit.compute(successor, "Conv", *inputs, kernel_shape=list(weight.shape[2:]), pads=list(pads), **window)


def find_convolutions(graph: ir.Graph) -> Iterator[Convolution]:
    """Iterate over the convolutions of a graph, in its order."""
    return (conv for node in graph if (conv := read_convolution(node)) is not None)


def is_centred(conv: Convolution) -> bool:
    """Return whether the window is in the middle of its padding, so that it contains smaller windows."""
    height, width = conv.kernel
    padding = (height // 2, width // 2, height // 2, width // 2)
    return height % 2 == 1 and width % 2 == 1 and conv.dilations == (1, 1) and conv.pads == padding


def pad_kernel(weight: Array, kernel: Sequence[int]) -> Array:
    """Pad a window with zeros to the size of the kernel."""
    padding = [((side - size) // 2,) * 2 for side, size in zip(kernel, weight.shape[2:], strict=True)]
    return np.pad(weight, [(0, 0), (0, 0), *padding])


def read_batchnorm(node: ir.Node | None) -> tuple[Array, Array] | None:
    """Read a BatchNorm as its factor and its shift of each channel, in float64; None for any other node."""
    if node is None or not is_kind(node, "BatchNormalization") or read_attribute(node, "training_mode", 0):
        return None
    constants = [read_constant(value) for value in node.inputs[1:5]]
    if any(values is None for values in constants):
        return None
    scale, shift, mean, variance = (np.asarray(values, np.float64) for values in constants)
    factor = scale / np.sqrt(variance + read_attribute(node, "epsilon", 1e-5))
    return factor, shift - mean * factor


def _find_batchnorm(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    for conv in find_convolutions(graph):
        user = find_only_user(conv.output)
        if user is not None and read_batchnorm(user) is not None:
            yield conv.node, user


def _fold_batchnorm(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    conv, numbers, norm = read_convolution(nodes[0]), read_batchnorm(nodes[1]), nodes[1]
    assert conv is not None
    assert numbers is not None
    factor, shift = numbers
    weight = (conv.weight * factor[:, None, None, None]).astype(conv.weight.dtype)
    bias = conv.dense_bias * factor + shift
    edit.replace(norm.outputs[0], add_convolution(edit, norm, conv.source, weight, bias, conv.pads, **conv.window))


def _find_parallel(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """Find pairs with the same input and window, and all of them if there are more."""
    by_value: dict[ir.Value, list[Convolution]] = {}
    for conv in find_convolutions(graph):
        if conv.group == 1:
            by_value.setdefault(conv.source, []).append(conv)
    for members in by_value.values():
        nodes_by_window: dict[str, list[ir.Node]] = {}
        for conv in members:
            nodes_by_window.setdefault(repr((conv.kernel, conv.pads, conv.window)), []).append(conv.node)
        for nodes in nodes_by_window.values():
            yield from combinations(nodes, 2)
            if len(nodes) > 2:
                yield nodes


def _merge_parallel(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    parsed = [read_convolution(node) for node in nodes]
    members = [conv for conv in parsed if conv is not None]
    first = members[0]
    weight = np.concatenate([conv.weight for conv in members])
    biased = any(conv.bias is not None for conv in members)
    bias = np.concatenate([conv.dense_bias for conv in members]) if biased else None
    # Before the first of them: the others may depend on its output.
    merged = add_convolution(edit, first.node, first.source, weight, bias, first.pads, **first.window)
    sizes = edit.add_constant(np.array([len(conv.weight) for conv in members], np.int64), first.node)
    parts = edit.add_node(first.node, "Split", [merged, sizes], outputs=len(members), axis=1)
    for conv, part in zip(members, parts, strict=True):
        edit.replace(conv.output, part)


def _find_branches(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """Find a sum of two convolutions of one value whose windows share a centre."""
    for node in graph:
        if not is_kind(node, "Add"):
            continue
        left, right = (read_convolution(find_producer(value, "Conv")) for value in node.inputs)
        if left is None or right is None or left.node is right.node or left.source is not right.source:
            continue
        unshared = find_only_user(left.output) is node and find_only_user(right.output) is node
        same_shape = (left.strides, left.group, left.weight.shape[:2]) == (
            right.strides,
            right.group,
            right.weight.shape[:2],
        )
        if unshared and same_shape and is_centred(left) and is_centred(right):
            yield left.node, right.node, node


def _sum_branches(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    left, right, add = read_convolution(nodes[0]), read_convolution(nodes[1]), nodes[2]
    assert left is not None
    assert right is not None
    kernel = tuple(max(sides) for sides in zip(left.kernel, right.kernel, strict=True))
    weight = pad_kernel(left.weight, kernel) + pad_kernel(right.weight, kernel)
    biased = left.bias is not None or right.bias is not None
    bias = left.dense_bias + right.dense_bias if biased else None
    pads = [kernel[0] // 2, kernel[1] // 2] * 2
    edit.replace(add.outputs[0], add_convolution(edit, add, left.source, weight, bias, pads, **left.window))


def _find_hollow(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """Find a 3x3 whose window is zero except in the middle."""
    for conv in find_convolutions(graph):
        border = np.ones((3, 3), bool)
        border[1, 1] = False
        if conv.kernel == (3, 3) and is_centred(conv) and not conv.weight[:, :, border].any():
            yield (conv.node,)


def _shrink(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    conv = read_convolution(nodes[0])
    assert conv is not None
    result = add_convolution(
        edit, conv.node, conv.source, conv.weight[:, :, 1:2, 1:2], conv.bias, (0, 0, 0, 0), **conv.window
    )
    edit.replace(conv.output, result)


def _find_convolution(value: ir.Value | None, add: ir.Node) -> Convolution | None:
    """Return the convolution that computes a summand, if its window has a centre that can hold an identity."""
    conv = read_convolution(find_producer(value, "Conv"))
    if conv is None or find_only_user(conv.output) is not add or not is_centred(conv) or conv.strides != (1, 1):
        return None
    return conv if len(conv.weight) == conv.weight.shape[1] * conv.group else None


def _find_normalised(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    for add in graph:
        if not is_kind(add, "Add"):
            continue
        for value, other in (add.inputs[:2], add.inputs[1::-1]):
            conv = _find_convolution(value, add)
            norm = find_producer(other, "BatchNormalization")
            if conv is None or norm is None or norm.inputs[0] is not conv.source or read_batchnorm(norm) is None:
                continue
            if find_only_user(norm.outputs[0]) is add:
                yield conv.node, norm, add
                break


def _absorb_batchnorm(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    conv, numbers, add = read_convolution(nodes[0]), read_batchnorm(nodes[1]), nodes[2]
    assert conv is not None
    assert numbers is not None
    factor, shift = numbers
    weight = conv.weight.astype(np.float64)
    channels = np.arange(len(weight))
    height, width = conv.kernel
    # The middle of each channel's own window.
    weight[channels, channels % weight.shape[1], height // 2, width // 2] += factor
    narrow = weight.astype(conv.weight.dtype)
    bias = conv.dense_bias + shift
    edit.replace(add.outputs[0], add_convolution(edit, add, conv.source, narrow, bias, conv.pads, **conv.window))


RULES = (
    Rule(
        name="fold-batchnorm",
        summary="a BatchNorm into the convolution before it",
        find=_find_batchnorm,
        rewrite=_fold_batchnorm,
    ),
    Rule(
        name="merge-convs",
        summary="two convolutions of one value into one",
        find=_find_parallel,
        rewrite=_merge_parallel,
    ),
    Rule(
        name="sum-branches",
        summary="a sum of two convolutions of one value into one",
        find=_find_branches,
        rewrite=_sum_branches,
    ),
    Rule(
        name="shrink-conv",
        summary="a 3x3 that is zero around its middle into a 1x1",
        find=_find_hollow,
        rewrite=_shrink,
    ),
    Rule(
        name="absorb-batchnorm",
        summary="a BatchNorm that is added to a convolution of the same value into that convolution",
        find=_find_normalised,
        rewrite=_absorb_batchnorm,
    ),
)
