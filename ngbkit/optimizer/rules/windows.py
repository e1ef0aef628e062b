"""Windows of convolutions: two that are summed become one, and one is grown so that it can be merged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from ngbkit.optimizer.editing import Edit, is_kind, only_user, producer
from ngbkit.optimizer.rules.base import Rule
from ngbkit.optimizer.rules.convolution import Convolution, centred, convolutions, grown, read, write


def _find_branches(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """A sum of two convolutions of one value, whose windows have one centre."""
    for node in graph:
        if not is_kind(node, "Add"):
            continue
        one, other = (read(producer(value, "Conv")) for value in node.inputs)
        if one is None or other is None or one.node is other.node or one.taken is not other.taken:
            continue
        alone = only_user(one.made) is node and only_user(other.made) is node
        alike = (one.strides, one.group, one.weight.shape[:2]) == (other.strides, other.group, other.weight.shape[:2])
        if alone and alike and centred(one) and centred(other):
            yield one.node, other.node, node


def _sum_branches(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    one, other, add = read(nodes[0]), read(nodes[1]), nodes[2]
    assert one is not None
    assert other is not None
    kernel = tuple(max(sides) for sides in zip(one.kernel, other.kernel, strict=True))
    weight = grown(one.weight, kernel) + grown(other.weight, kernel)
    biased = one.bias is not None or other.bias is not None
    bias = one.bias_or_zeros() + other.bias_or_zeros() if biased else None
    pads = [kernel[0] // 2, kernel[1] // 2] * 2
    edit.replace(add.outputs[0], write(edit, add, one.taken, weight, bias, pads, **one.window))


def _find_centred(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    return ((one.node,) for one in convolutions(graph) if centred(one) and min(one.kernel) > 1)


def _split_branch(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    """The middle of the window becomes a convolution of its own."""
    one = read(nodes[0])
    assert one is not None
    height, width = one.kernel
    middle = one.weight[:, :, height // 2, width // 2][:, :, None, None]
    rest = one.weight.copy()
    rest[:, :, height // 2, width // 2] = 0
    wide = write(edit, one.node, one.taken, rest, one.bias, one.pads, **one.window)
    narrow = write(edit, one.node, one.taken, middle, None, (0, 0, 0, 0), **one.window)
    edit.replace(one.made, edit.one(one.node, "Add", wide, narrow))


def _find_pointwise(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """A 1x1 beside a 3x3 of the same value, with which it can be merged then."""
    by_value: dict[ir.Value, list[Convolution]] = {}
    for one in convolutions(graph):
        if one.group == 1 and centred(one):
            by_value.setdefault(one.taken, []).append(one)
    for several in by_value.values():
        for one in several:
            if one.kernel == (1, 1) and any(
                other.kernel == (3, 3) and other.strides == one.strides for other in several
            ):
                yield (one.node,)


def _enlarge(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    one = read(nodes[0])
    assert one is not None
    made = write(edit, one.node, one.taken, grown(one.weight, (3, 3)), one.bias, (1, 1, 1, 1), **one.window)
    edit.replace(one.made, made)


def _find_hollow(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """A 3x3 whose window is zero but for its middle."""
    for one in convolutions(graph):
        around = np.ones((3, 3), bool)
        around[1, 1] = False
        if one.kernel == (3, 3) and centred(one) and not one.weight[:, :, around].any():
            yield (one.node,)


def _shrink(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    one = read(nodes[0])
    assert one is not None
    made = write(edit, one.node, one.taken, one.weight[:, :, 1:2, 1:2], one.bias, (0, 0, 0, 0), **one.window)
    edit.replace(one.made, made)


RULES = (
    Rule(
        name="sum-branches",
        summary="a sum of two convolutions of one value into one",
        find=_find_branches,
        rewrite=_sum_branches,
        inverse="split-branch",
    ),
    Rule(
        name="split-branch",
        summary="the middle of a window into a convolution of its own",
        find=_find_centred,
        rewrite=_split_branch,
        inverse="sum-branches",
    ),
    Rule(
        name="enlarge-conv",
        summary="a 1x1 beside a 3x3 into a 3x3",
        find=_find_pointwise,
        rewrite=_enlarge,
        inverse="shrink-conv",
    ),
    Rule(
        name="shrink-conv",
        summary="a 3x3 that is zero around its middle into a 1x1",
        find=_find_hollow,
        rewrite=_shrink,
        inverse="enlarge-conv",
    ),
)
