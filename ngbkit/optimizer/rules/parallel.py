"""Convolutions of one value: two that become one, and one that becomes two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import onnx_ir as ir

from ngbkit.optimizer.editing import Edit
from ngbkit.optimizer.rules.base import Rule
from ngbkit.optimizer.rules.convolution import Convolution, convolutions, read, write

# Below this many channels in each half, a split makes nothing but calls.
_LEAST_CHANNELS = 8


def _find_parallel(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """Pairs that take the same value through the same window, and all of them where there are more."""
    by_value: dict[ir.Value, list[Convolution]] = {}
    for one in convolutions(graph):
        if one.group == 1:
            by_value.setdefault(one.taken, []).append(one)
    for several in by_value.values():
        alike: dict[str, list[ir.Node]] = {}
        for one in several:
            alike.setdefault(repr((one.kernel, one.pads, one.window)), []).append(one.node)
        for nodes in alike.values():
            yield from combinations(nodes, 2)
            if len(nodes) > 2:
                yield nodes


def _merge_parallel(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    found = [read(node) for node in nodes]
    several = [one for one in found if one is not None]
    first = several[0]
    weight = np.concatenate([one.weight for one in several])
    biased = any(one.bias is not None for one in several)
    bias = np.concatenate([one.bias_or_zeros() for one in several]) if biased else None
    # In front of the first of them: what the others follow may follow the first one's output.
    made = write(edit, first.node, first.taken, weight, bias, first.pads, **first.window)
    sizes = edit.constant(np.array([len(one.weight) for one in several], np.int64), first.node)
    parts = edit.add(first.node, "Split", [made, sizes], outputs=len(several), axis=1)
    for one, part in zip(several, parts, strict=True):
        edit.replace(one.made, part)


def _find_wide(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    for one in convolutions(graph):
        if one.group == 1 and len(one.weight) >= 2 * _LEAST_CHANNELS:
            yield (one.node,)


def _split_channels(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    one = read(nodes[0])
    assert one is not None
    half = len(one.weight) // 2
    parts = []
    for span in (slice(0, half), slice(half, None)):
        bias = None if one.bias is None else one.bias[span]
        parts.append(write(edit, one.node, one.taken, one.weight[span], bias, one.pads, **one.window))
    edit.replace(one.made, edit.one(one.node, "Concat", *parts, axis=1))


RULES = (
    Rule(
        name="merge-convs",
        summary="two convolutions of one value into one",
        find=_find_parallel,
        rewrite=_merge_parallel,
        inverse="split-conv",
    ),
    Rule(
        name="split-conv",
        summary="a convolution into one for each half of its channels",
        find=_find_wide,
        rewrite=_split_channels,
        inverse="merge-convs",
    ),
)
