"""Matrix products: merges several of one value, and converts 1x1 convolutions to products and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from ngbkit.predict.optimizer.editing import (
    Edit,
    find_only_user,
    find_producer,
    is_kind,
    read_attribute,
    read_constant,
    read_shape,
)
from ngbkit.predict.optimizer.rules.base import Rule
from ngbkit.predict.optimizer.rules.convolution import add_convolution, find_convolutions, read_convolution

_LAST, _FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
"""Orders of dimensions: channels to the end, and back."""


def _find_pointwise(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    for conv in find_convolutions(graph):
        plain = (conv.kernel, conv.strides, conv.group, set(conv.pads)) == ((1, 1), (1, 1), 1, {0})
        if plain and read_shape(conv.source) is not None:
            yield (conv.node,)


def _to_matmul(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    conv = read_convolution(nodes[0])
    assert conv is not None
    transposed = edit.compute(conv.node, "Transpose", conv.source, perm=list(_LAST))
    result = edit.compute(conv.node, "MatMul", transposed, edit.add_constant(conv.weight[:, :, 0, 0].T, conv.node))
    if conv.bias is not None:
        result = edit.compute(conv.node, "Add", result, edit.add_constant(conv.bias, conv.node))
    edit.replace(conv.output, edit.compute(conv.node, "Transpose", result, perm=list(_FIRST)))


def _find_disguised(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """Find a product of the channels of an image, between a transposition and its inverse."""
    for last in graph:
        if not is_kind(last, "Transpose") or read_attribute(last, "perm") != _FIRST:
            continue
        add = find_producer(last.inputs[0], "Add")
        product = find_producer(add.inputs[0] if add is not None else last.inputs[0], "MatMul")
        first = find_producer(product.inputs[0], "Transpose") if product is not None else None
        if product is None or first is None or read_attribute(first, "perm") != _LAST:
            continue
        weight = read_constant(product.inputs[1])
        bias = read_constant(add.inputs[1]) if add is not None else np.zeros(1)
        chain = [node for node in (product, add) if node is not None]
        unshared = all(find_only_user(node.outputs[0]) is not None for node in chain)
        if unshared and weight is not None and weight.ndim == 2 and bias is not None and bias.ndim == 1:
            yield (first, *chain, last)


def _to_conv(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    first, product, *rest = nodes
    last = rest[-1]
    weight = read_constant(product.inputs[1])
    bias = read_constant(rest[0].inputs[1]) if len(rest) > 1 else None
    source = first.inputs[0]
    assert weight is not None
    assert source is not None
    if bias is not None:
        bias = np.broadcast_to(bias, weight.shape[1:]).copy()
    window = {"strides": [1, 1], "dilations": [1, 1], "group": 1}
    result = add_convolution(edit, last, source, weight.T[:, :, None, None].copy(), bias, (0, 0, 0, 0), **window)
    edit.replace(last.outputs[0], result)


def _find_parallel(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """Find products of one value with constant matrices, such as the queries, keys and values of attention."""
    by_value: dict[ir.Value, list[ir.Node]] = {}
    for node in graph:
        weight = read_constant(node.inputs[1]) if is_kind(node, "MatMul") else None
        if weight is not None and weight.ndim == 2 and node.inputs[0] is not None:
            by_value.setdefault(node.inputs[0], []).append(node)
    return (tuple(nodes) for nodes in by_value.values() if len(nodes) > 1)


def _merge(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    matrices = [read_constant(node.inputs[1]) for node in nodes]
    weights = [weight for weight in matrices if weight is not None]
    first = nodes[0]
    merged = edit.compute(first, "MatMul", first.inputs[0], edit.add_constant(np.concatenate(weights, axis=1), first))
    sizes = edit.add_constant(np.array([weight.shape[1] for weight in weights], np.int64), first)
    parts = edit.add_node(first, "Split", [merged, sizes], outputs=len(nodes), axis=-1)
    for node, part in zip(nodes, parts, strict=True):
        edit.replace(node.outputs[0], part)


RULES = (
    Rule(
        name="conv-to-matmul",
        summary="a 1x1 convolution into a matrix product between two transpositions",
        find=_find_pointwise,
        rewrite=_to_matmul,
    ),
    Rule(
        name="matmul-to-conv",
        summary="a matrix product between two transpositions into a 1x1 convolution",
        find=_find_disguised,
        rewrite=_to_conv,
    ),
    Rule(
        name="merge-matmuls",
        summary="matrix products of one value into one, as queries, keys and values",
        find=_find_parallel,
        rewrite=_merge,
    ),
)
