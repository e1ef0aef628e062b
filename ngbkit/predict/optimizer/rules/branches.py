"""Branches that only normalise a value, as in RepVGG and MobileOne: absorbed by the convolution beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from ngbkit.predict.optimizer.editing import Edit, find_only_user, find_producer, is_kind
from ngbkit.predict.optimizer.rules.base import Rule
from ngbkit.predict.optimizer.rules.batchnorm import read_batchnorm
from ngbkit.predict.optimizer.rules.convolution import (
    Convolution,
    add_convolution,
    is_centred,
    read_convolution,
)


def _find_convolution(value: ir.Value | None, add: ir.Node) -> Convolution | None:
    """Return the convolution that computes a summand, if its window has a centre that can hold an identity."""
    conv = read_convolution(find_producer(value, "Conv"))
    if conv is None or find_only_user(conv.output) is not add or not is_centred(conv) or conv.strides != (1, 1):
        return None
    return conv if len(conv.weight) == conv.weight.shape[1] * conv.group else None


def _find_normalised(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    for add in graph:
        if not is_kind(add, "Add"):
            continue
        for value, other in (add.inputs[:2], add.inputs[1::-1]):
            conv = _find_convolution(value, add)
            norm = find_producer(other, "BatchNormalization")
            if conv is None or norm is None or norm.inputs[0] is not conv.source or read_batchnorm(norm) is None:
                continue
            if find_only_user(norm.outputs[0]) is add:
                yield conv.node, norm, add
                break


def _absorb_batchnorm(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    conv, numbers, add = read_convolution(nodes[0]), read_batchnorm(nodes[1]), nodes[2]
    assert conv is not None
    assert numbers is not None
    factor, shift = numbers
    weight = conv.weight.astype(np.float64)
    channels = np.arange(len(weight))
    height, width = conv.kernel
    # The middle of each channel's own window.
    weight[channels, channels % weight.shape[1], height // 2, width // 2] += factor
    narrow = weight.astype(conv.weight.dtype)
    bias = conv.dense_bias + shift
    edit.replace(add.outputs[0], add_convolution(edit, add, conv.source, narrow, bias, conv.pads, **conv.window))


RULES = (
    Rule(
        name="absorb-batchnorm",
        summary="a BatchNorm that is added to a convolution of the same value into that convolution",
        find=_find_normalised,
        rewrite=_absorb_batchnorm,
    ),
)
