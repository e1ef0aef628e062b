"""BatchNorm and the convolution before it: one folded into the other, and taken out of it again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from ngbkit.optimizer.editing import Edit, array, attribute, is_kind, only_user
from ngbkit.optimizer.rules.base import Rule
from ngbkit.optimizer.rules.convolution import convolutions, read, write


def _find_batchnorm(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    for one in convolutions(graph):
        user = only_user(one.made)
        if user is None or not is_kind(user, "BatchNormalization") or attribute(user, "training_mode", 0):
            continue
        if all(array(value) is not None for value in user.inputs[1:5]):
            yield one.node, user


def _fold_batchnorm(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    one, norm = read(nodes[0]), nodes[1]
    assert one is not None
    scale, shift, mean, variance = (np.asarray(array(value), np.float64) for value in norm.inputs[1:5])
    factor = scale / np.sqrt(variance + attribute(norm, "epsilon", 1e-5))
    weight = (one.weight * factor[:, None, None, None]).astype(one.weight.dtype)
    bias = (one.bias_or_zeros() - mean) * factor + shift
    edit.replace(norm.outputs[0], write(edit, norm, one.taken, weight, bias, one.pads, **one.window))


def _find_biased(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    return ((one.node,) for one in convolutions(graph) if one.bias is not None)


def _unfold_batchnorm(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    """The scales of the channels and the bias go into a normalisation of their own."""
    one = read(nodes[0])
    assert one is not None
    scale = np.sqrt((one.weight.astype(np.float64) ** 2).mean(axis=(1, 2, 3)))
    scale = np.where(scale > 0, scale, 1.0)
    weight = (one.weight / scale[:, None, None, None]).astype(one.weight.dtype)
    made = write(edit, one.node, one.taken, weight, None, one.pads, **one.window)
    channels, kind = len(weight), one.weight.dtype
    numbers = [scale, one.bias_or_zeros(), np.zeros(channels), np.ones(channels)]
    constants = [edit.constant(np.asarray(values).astype(kind), one.node) for values in numbers]
    edit.replace(one.made, edit.one(one.node, "BatchNormalization", made, *constants, epsilon=0.0))


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
