"""Convolutions of one value: merges several into one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import onnx_ir as ir

from ngbkit.predict.optimizer.editing import Edit
from ngbkit.predict.optimizer.rules.base import Rule
from ngbkit.predict.optimizer.rules.convolution import Convolution, add_convolution, find_convolutions, read_convolution


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


RULES = (
    Rule(
        name="merge-convs",
        summary="two convolutions of one value into one",
        find=_find_parallel,
        rewrite=_merge_parallel,
    ),
)
