"""Windows of convolutions: merges two that are summed, and shrinks one that is zero around its middle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from ngbkit.predict.optimizer.editing import Edit, find_only_user, find_producer, is_kind
from ngbkit.predict.optimizer.rules.base import Rule
from ngbkit.predict.optimizer.rules.convolution import (
    add_convolution,
    find_convolutions,
    is_centred,
    pad_kernel,
    read_convolution,
)


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


RULES = (
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
)
