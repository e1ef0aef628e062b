"""Transpositions: pushes them past elementwise operators, pulls them back, and merges two in a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from ngbkit.predict.optimizer.editing import Edit, find_only_user, find_producer, is_kind, read_attribute
from ngbkit.predict.optimizer.rules.base import Rule

_BY_ELEMENT = (
    *("Relu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Gelu", "Erf", "Elu", "LeakyRelu", "Sqrt", "Exp", "Neg"),
    *("Identity", "Abs"),
)


def _find_before(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """Find a transposition whose only consumer is an elementwise operator."""
    for node in graph:
        user = find_only_user(node.outputs[0]) if is_kind(node, "Transpose") and read_attribute(node, "perm") else None
        if user is not None and is_kind(user, *_BY_ELEMENT):
            yield node, user


def _push(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    transpose, operator = nodes
    result = edit.compute(operator, operator.op_type, transpose.inputs[0], **_copy_attributes(operator))
    edit.replace(
        operator.outputs[0], edit.compute(operator, "Transpose", result, perm=list(read_attribute(transpose, "perm")))
    )


def _find_behind(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """Find an elementwise operator whose only consumer is a transposition."""
    for node in graph:
        user = find_only_user(node.outputs[0]) if is_kind(node, *_BY_ELEMENT) else None
        if user is not None and is_kind(user, "Transpose") and read_attribute(user, "perm"):
            yield node, user


def _pull(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    operator, transpose = nodes
    result = edit.compute(transpose, "Transpose", operator.inputs[0], perm=list(read_attribute(transpose, "perm")))
    edit.replace(transpose.outputs[0], edit.compute(transpose, operator.op_type, result, **_copy_attributes(operator)))


def _find_pairs(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    for node in graph:
        first = (
            find_producer(node.inputs[0], "Transpose")
            if is_kind(node, "Transpose") and read_attribute(node, "perm")
            else None
        )
        if first is not None and read_attribute(first, "perm"):
            yield first, node


def _merge(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    first, second = nodes
    order = [read_attribute(first, "perm")[axis] for axis in read_attribute(second, "perm")]
    source = first.inputs[0]
    assert source is not None
    if order == sorted(order) and not second.outputs[0].is_graph_output():
        edit.replace(second.outputs[0], source)
    else:
        edit.replace(second.outputs[0], edit.compute(second, "Transpose", source, perm=order))


def _copy_attributes(node: ir.Node) -> dict[str, ir.Attr]:
    return dict(node.attributes.items())


RULES = (
    Rule(
        name="push-transpose",
        summary="a transposition past an operator that works by element",
        find=_find_before,
        rewrite=_push,
    ),
    Rule(
        name="pull-transpose",
        summary="a transposition in front of an operator that works by element",
        find=_find_behind,
        rewrite=_pull,
    ),
    Rule(
        name="merge-transposes",
        summary="two transpositions in a row into one, or into none",
        find=_find_pairs,
        rewrite=_merge,
    ),
)
