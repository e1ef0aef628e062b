"""Matrix products: several of one value in one, one as several, and those that are convolutions in disguise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from ngbkit.optimizer.editing import Edit, array, attribute, is_kind, only_user, producer, shape
from ngbkit.optimizer.rules.base import Rule
from ngbkit.optimizer.rules.convolution import convolutions, read, write

_LAST, _FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
"""Orders of dimensions: channels to the end, and back to where images have them."""

# Below this many columns in each half, a split makes nothing but calls.
_LEAST_COLUMNS = 16


def _find_pointwise(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    for one in convolutions(graph):
        plain = (one.kernel, one.strides, one.group, set(one.pads)) == ((1, 1), (1, 1), 1, {0})
        if plain and shape(one.taken) is not None:
            yield (one.node,)


def _to_matmul(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    one = read(nodes[0])
    assert one is not None
    turned = edit.one(one.node, "Transpose", one.taken, perm=list(_LAST))
    made = edit.one(one.node, "MatMul", turned, edit.constant(one.weight[:, :, 0, 0].T, one.node))
    if one.bias is not None:
        made = edit.one(one.node, "Add", made, edit.constant(one.bias, one.node))
    edit.replace(one.made, edit.one(one.node, "Transpose", made, perm=list(_FIRST)))


def _find_disguised(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """A product of the channels of an image that is turned for it and turned back."""
    for back in graph:
        if not is_kind(back, "Transpose") or attribute(back, "perm") != _FIRST:
            continue
        add = producer(back.inputs[0], "Add")
        product = producer(add.inputs[0] if add is not None else back.inputs[0], "MatMul")
        turn = producer(product.inputs[0], "Transpose") if product is not None else None
        if product is None or turn is None or attribute(turn, "perm") != _LAST:
            continue
        weight = array(product.inputs[1])
        bias = array(add.inputs[1]) if add is not None else np.zeros(1)
        chain = [node for node in (product, add) if node is not None]
        alone = all(only_user(node.outputs[0]) is not None for node in chain)
        if alone and weight is not None and weight.ndim == 2 and bias is not None and bias.ndim == 1:
            yield (turn, *chain, back)


def _to_conv(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    turn, product, *rest = nodes
    back = rest[-1]
    weight = array(product.inputs[1])
    bias = array(rest[0].inputs[1]) if len(rest) > 1 else None
    taken = turn.inputs[0]
    assert weight is not None
    assert taken is not None
    if bias is not None:
        bias = np.broadcast_to(bias, weight.shape[1:]).copy()
    window = {"strides": [1, 1], "dilations": [1, 1], "group": 1}
    made = write(edit, back, taken, weight.T[:, :, None, None].copy(), bias, (0, 0, 0, 0), **window)
    edit.replace(back.outputs[0], made)


def _find_parallel(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """Products of one value with constant matrices, as the queries, keys and values of attention are."""
    by_value: dict[ir.Value, list[ir.Node]] = {}
    for node in graph:
        weight = array(node.inputs[1]) if is_kind(node, "MatMul") else None
        if weight is not None and weight.ndim == 2 and node.inputs[0] is not None:
            by_value.setdefault(node.inputs[0], []).append(node)
    return (tuple(nodes) for nodes in by_value.values() if len(nodes) > 1)


def _merge(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    found = [array(node.inputs[1]) for node in nodes]
    weights = [weight for weight in found if weight is not None]
    first = nodes[0]
    made = edit.one(first, "MatMul", first.inputs[0], edit.constant(np.concatenate(weights, axis=1), first))
    sizes = edit.constant(np.array([weight.shape[1] for weight in weights], np.int64), first)
    parts = edit.add(first, "Split", [made, sizes], outputs=len(nodes), axis=-1)
    for node, part in zip(nodes, parts, strict=True):
        edit.replace(node.outputs[0], part)


def _find_wide(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    for node in graph:
        weight = array(node.inputs[1]) if is_kind(node, "MatMul") else None
        if weight is not None and weight.ndim == 2 and weight.shape[1] >= 2 * _LEAST_COLUMNS:
            yield (node,)


def _split(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    (node,) = nodes
    weight = array(node.inputs[1])
    assert weight is not None
    half = weight.shape[1] // 2
    parts = [
        edit.one(node, "MatMul", node.inputs[0], edit.constant(columns, node))
        for columns in (weight[:, :half], weight[:, half:])
    ]
    edit.replace(node.outputs[0], edit.one(node, "Concat", *parts, axis=-1))


RULES = (
    Rule(
        name="conv-to-matmul",
        summary="a 1x1 convolution into a matrix product between two transpositions",
        find=_find_pointwise,
        rewrite=_to_matmul,
        inverse="matmul-to-conv",
    ),
    Rule(
        name="matmul-to-conv",
        summary="a matrix product between two transpositions into a 1x1 convolution",
        find=_find_disguised,
        rewrite=_to_conv,
        inverse="conv-to-matmul",
    ),
    Rule(
        name="merge-matmuls",
        summary="matrix products of one value into one, as queries, keys and values",
        find=_find_parallel,
        rewrite=_merge,
        inverse="split-matmul",
    ),
    Rule(
        name="split-matmul",
        summary="a matrix product into one for each half of its columns",
        find=_find_wide,
        rewrite=_split,
        inverse="merge-matmuls",
    ),
)
