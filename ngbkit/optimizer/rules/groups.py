"""Groups of convolutions: halves their number by padding weights with zeros, and doubles it where weights are zero."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from ngbkit.optimizer.editing import Edit
from ngbkit.optimizer.rules.base import Rule
from ngbkit.optimizer.rules.convolution import Array, add_convolution, find_convolutions, read_convolution


def _find_grouped(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """Find groups that can be merged in pairs; a depthwise convolution would only waste work."""
    for conv in find_convolutions(graph):
        if conv.group > 1 and conv.group % 2 == 0 and conv.weight.shape[1] > 1:
            yield (conv.node,)


def _merge_groups(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    conv = read_convolution(nodes[0])
    assert conv is not None
    out, inner = conv.weight.shape[:2]
    each = out // conv.group
    weight = np.zeros((out, 2 * inner, *conv.kernel), conv.weight.dtype)
    for group in range(conv.group):
        rows, first = slice(group * each, (group + 1) * each), (group % 2) * inner
        weight[rows, first : first + inner] = conv.weight[rows]
    window = conv.window | {"group": conv.group // 2}
    edit.replace(conv.output, add_convolution(edit, conv.node, conv.source, weight, conv.bias, conv.pads, **window))


def _find_blocks(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """Find convolutions whose weights connect each half of a group's inputs to one half of its outputs."""
    for conv in find_convolutions(graph):
        out, inner = conv.weight.shape[:2]
        each = out // conv.group
        if inner % 2 or each % 2 or not _is_block_diagonal(conv.weight, conv.group, each, inner):
            continue
        yield (conv.node,)


def _is_block_diagonal(weight: Array, groups: int, each: int, inner: int) -> bool:
    for group in range(groups):
        rows = weight[group * each : (group + 1) * each]
        if rows[: each // 2, inner // 2 :].any() or rows[each // 2 :, : inner // 2].any():
            return False
    return True


def _split_groups(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    conv = read_convolution(nodes[0])
    assert conv is not None
    out, inner = conv.weight.shape[:2]
    half, each = inner // 2, out // conv.group
    weight = np.empty((out, half, *conv.kernel), conv.weight.dtype)
    for group in range(2 * conv.group):
        rows = slice(group * each // 2, (group + 1) * each // 2)
        first = (group % 2) * half
        weight[rows] = conv.weight[rows, first : first + half]
    window = conv.window | {"group": 2 * conv.group}
    edit.replace(conv.output, add_convolution(edit, conv.node, conv.source, weight, conv.bias, conv.pads, **window))


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
