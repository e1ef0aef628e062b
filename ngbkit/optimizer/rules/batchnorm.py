"""Folds a BatchNorm into the convolution before it, and unfolds it again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from ngbkit.optimizer.editing import Edit, find_only_user, is_kind, read_attribute, read_constant
from ngbkit.optimizer.rules.base import Rule
from ngbkit.optimizer.rules.convolution import Array, add_convolution, find_convolutions, read_convolution


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


def _find_biased(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    return ((conv.node,) for conv in find_convolutions(graph) if conv.bias is not None)


def _unfold_batchnorm(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    """Move the scales of the channels and the bias into a BatchNorm."""
    conv = read_convolution(nodes[0])
    assert conv is not None
    scale = np.sqrt((conv.weight.astype(np.float64) ** 2).mean(axis=(1, 2, 3)))
    scale = np.where(scale > 0, scale, 1.0)
    weight = (conv.weight / scale[:, None, None, None]).astype(conv.weight.dtype)
    product = add_convolution(edit, conv.node, conv.source, weight, None, conv.pads, **conv.window)
    channels, dtype = len(weight), conv.weight.dtype
    numbers = [scale, conv.dense_bias, np.zeros(channels), np.ones(channels)]
    constants = [edit.add_constant(np.asarray(values).astype(dtype), conv.node) for values in numbers]
    edit.replace(conv.output, edit.compute(conv.node, "BatchNormalization", product, *constants, epsilon=0.0))


RULES = (
    Rule(
        name="fold-batchnorm",
        summary="a BatchNorm into the convolution before it",
        find=_find_batchnorm,
        rewrite=_fold_batchnorm,
        inverse="unfold-batchnorm",
    ),
    Rule(
        name="unfold-batchnorm",
        summary="scales and bias of a convolution into a BatchNorm",
        find=_find_biased,
        rewrite=_unfold_batchnorm,
        inverse="fold-batchnorm",
    ),
)
