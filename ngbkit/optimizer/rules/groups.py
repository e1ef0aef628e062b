"""Groups of convolutions: half as many with zeros between, and back where there are zeros."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from ngbkit.optimizer.editing import Edit
from ngbkit.optimizer.rules.base import Rule
from ngbkit.optimizer.rules.convolution import Array, convolutions, read, write


def _find_grouped(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """Groups that can be taken two by two; of a depthwise convolution that would only be waste."""
    for one in convolutions(graph):
        if one.group > 1 and one.group % 2 == 0 and one.weight.shape[1] > 1:
            yield (one.node,)


def _merge_groups(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    one = read(nodes[0])
    assert one is not None
    out, inner = one.weight.shape[:2]
    each = out // one.group
    weight = np.zeros((out, 2 * inner, *one.kernel), one.weight.dtype)
    for group in range(one.group):
        rows, first = slice(group * each, (group + 1) * each), (group % 2) * inner
        weight[rows, first : first + inner] = one.weight[rows]
    window = one.window | {"group": one.group // 2}
    edit.replace(one.made, write(edit, one.node, one.taken, weight, one.bias, one.pads, **window))


def _find_blocks(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """Convolutions whose weights leave each half of the channels that come in to one half of those that go out."""
    for one in convolutions(graph):
        out, inner = one.weight.shape[:2]
        each = out // one.group
        if inner % 2 or each % 2 or not _halves(one.weight, one.group, each, inner):
            continue
        yield (one.node,)


def _halves(weight: Array, groups: int, each: int, inner: int) -> bool:
    for group in range(groups):
        rows = weight[group * each : (group + 1) * each]
        if rows[: each // 2, inner // 2 :].any() or rows[each // 2 :, : inner // 2].any():
            return False
    return True


def _split_groups(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    one = read(nodes[0])
    assert one is not None
    out, inner = one.weight.shape[:2]
    half, each = inner // 2, out // one.group
    weight = np.empty((out, half, *one.kernel), one.weight.dtype)
    for group in range(2 * one.group):
        rows = slice(group * each // 2, (group + 1) * each // 2)
        first = (group % 2) * half
        weight[rows] = one.weight[rows, first : first + half]
    window = one.window | {"group": 2 * one.group}
    edit.replace(one.made, write(edit, one.node, one.taken, weight, one.bias, one.pads, **window))


RULES = (
    Rule(
        name="merge-groups",
        summary="the groups of a convolution two by two",
        find=_find_grouped,
        rewrite=_merge_groups,
        inverse="split-groups",
    ),
    Rule(
        name="split-groups",
        summary="weights in blocks into twice as many groups",
        find=_find_blocks,
        rewrite=_split_groups,
        inverse="merge-groups",
    ),
)
