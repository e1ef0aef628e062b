"""Transpositions: pushed past what works by element, pulled back, and two in a row as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from ngbkit.optimizer.editing import Edit, attribute, is_kind, only_user, producer
from ngbkit.optimizer.rules.base import Rule

_BY_ELEMENT = (
    *("Relu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Gelu", "Erf", "Elu", "LeakyRelu", "Sqrt", "Exp", "Neg"),
    *("Identity", "Abs"),
)


def _find_before(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """A transposition whose value goes to one operator that works by element."""
    for node in graph:
        user = only_user(node.outputs[0]) if is_kind(node, "Transpose") and attribute(node, "perm") else None
        if user is not None and is_kind(user, *_BY_ELEMENT):
            yield node, user


def _push(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    turn, worker = nodes
    made = edit.one(worker, worker.op_type, turn.inputs[0], **_attributes(worker))
    edit.replace(worker.outputs[0], edit.one(worker, "Transpose", made, perm=list(attribute(turn, "perm"))))


def _find_behind(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """An operator that works by element, whose value is transposed and goes nowhere else."""
    for node in graph:
        user = only_user(node.outputs[0]) if is_kind(node, *_BY_ELEMENT) else None
        if user is not None and is_kind(user, "Transpose") and attribute(user, "perm"):
            yield node, user


def _pull(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    worker, turn = nodes
    made = edit.one(turn, "Transpose", worker.inputs[0], perm=list(attribute(turn, "perm")))
    edit.replace(turn.outputs[0], edit.one(turn, worker.op_type, made, **_attributes(worker)))


def _find_pairs(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    for node in graph:
        before = (
            producer(node.inputs[0], "Transpose") if is_kind(node, "Transpose") and attribute(node, "perm") else None
        )
        if before is not None and attribute(before, "perm"):
            yield before, node


def _merge(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    first, second = nodes
    order = [attribute(first, "perm")[at] for at in attribute(second, "perm")]
    taken = first.inputs[0]
    assert taken is not None
    if order == sorted(order) and not second.outputs[0].is_graph_output():
        edit.replace(second.outputs[0], taken)
    else:
        edit.replace(second.outputs[0], edit.one(second, "Transpose", taken, perm=order))


def _attributes(node: ir.Node) -> dict[str, ir.Attr]:
    return dict(node.attributes.items())


RULES = (
    Rule(
        name="push-transpose",
        summary="a transposition past an operator that works by element",
        find=_find_before,
        rewrite=_push,
        inverse="pull-transpose",
    ),
    Rule(
        name="pull-transpose",
        summary="a transposition in front of an operator that works by element",
        find=_find_behind,
        rewrite=_pull,
        inverse="push-transpose",
    ),
    Rule(
        name="merge-transposes",
        summary="two transpositions in a row into one, or into none",
        find=_find_pairs,
        rewrite=_merge,
    ),
)
