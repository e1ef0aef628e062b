"""Folds a BatchNorm into the convolution before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from ngbkit.predict.optimizer.editing import Edit, find_only_user, is_kind, read_attribute, read_constant
from ngbkit.predict.optimizer.rules.base import Rule
from ngbkit.predict.optimizer.rules.convolution import Array, add_convolution, find_convolutions, read_convolution


def read_batchnorm(node: ir.Node | None) -> tuple[Array, Array] | None:
    """Read a BatchNorm as its factor and its shift of each channel, in float64; None for any other node."""
    if node is None or not is_kind(node, "BatchNormalization") or read_attribute(node, "training_mode", 0):
        return None
    constants = [read_constant(value) for value in node.inputs[1:5]]
    if any(values is None for values in constants):
        return None
    scale, shift, mean, variance = (np.asarray(values, np.float64) for values in constants)
    factor = scale / np.sqrt(variance + read_attribute(node, "epsilon", 1e-5))
    return factor, shift - mean * factor


def _find_batchnorm(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    for conv in find_convolutions(graph):
        user = find_only_user(conv.output)
        if user is not None and read_batchnorm(user) is not None:
            yield conv.node, user


def _fold_batchnorm(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    conv, numbers, norm = read_convolution(nodes[0]), read_batchnorm(nodes[1]), nodes[1]
    assert conv is not None
    assert numbers is not None
    factor, shift = numbers
    weight = (conv.weight * factor[:, None, None, None]).astype(conv.weight.dtype)
    bias = conv.dense_bias * factor + shift
    edit.replace(norm.outputs[0], add_convolution(edit, norm, conv.source, weight, bias, conv.pads, **conv.window))


RULES = (
    Rule(
        name="fold-batchnorm",
        summary="a BatchNorm into the convolution before it",
        find=_find_batchnorm,
        rewrite=_fold_batchnorm,
    ),
)
