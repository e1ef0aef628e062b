"""Replaces mean pooling by a depthwise convolution, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from ngbkit.optimizer.editing import Edit, is_kind, read_attribute, read_shape
from ngbkit.optimizer.rules.base import Rule
from ngbkit.optimizer.rules.convolution import add_convolution, find_convolutions, read_convolution


def _find_average(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """Find mean pooling with the same divisor everywhere."""
    for node in graph:
        if (
            not is_kind(node, "AveragePool")
            or read_attribute(node, "ceil_mode", 0)
            or len(read_shape(node.inputs[0]) or ()) != 4
        ):
            continue
        padded = any(read_attribute(node, "pads", (0,)))
        plain = read_attribute(node, "auto_pad", "NOTSET") == "NOTSET" and set(
            read_attribute(node, "dilations", (1,))
        ) == {1}
        if plain and (not padded or read_attribute(node, "count_include_pad", 0)):
            yield (node,)


def _average_to_depthwise(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    (node,) = nodes
    source = node.inputs[0]
    sides, kernel = read_shape(source), read_attribute(node, "kernel_shape")
    assert source is not None
    assert sides is not None
    dtype = source.dtype.numpy() if source.dtype is not None else np.dtype(np.float32)
    weight = np.full((sides[1], 1, *kernel), 1 / np.prod(kernel), dtype)
    window = {"strides": list(read_attribute(node, "strides", (1, 1))), "dilations": [1, 1], "group": sides[1]}
    pads = read_attribute(node, "pads", (0, 0, 0, 0))
    edit.replace(node.outputs[0], add_convolution(edit, node, source, weight, None, pads, **window))


def _find_means(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """Find depthwise convolutions that compute means."""
    for conv in find_convolutions(graph):
        depthwise = conv.group > 1 and conv.weight.shape[:2] == (conv.group, 1) and conv.dilations == (1, 1)
        if depthwise and not np.any(conv.dense_bias) and np.allclose(conv.weight, 1 / np.prod(conv.kernel), rtol=1e-6):
            yield (conv.node,)


def _depthwise_to_average(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    conv = read_convolution(nodes[0])
    assert conv is not None
    window = {"kernel_shape": list(conv.kernel), "strides": list(conv.strides), "pads": list(conv.pads)}
    edit.replace(conv.output, edit.compute(conv.node, "AveragePool", conv.source, count_include_pad=1, **window))


RULES = (
    Rule(
        name="average-to-depthwise",
        summary="mean pooling into a depthwise convolution",
        find=_find_average,
        rewrite=_average_to_depthwise,
        inverse="depthwise-to-average",
    ),
    Rule(
        name="depthwise-to-average",
        summary="a depthwise convolution that takes means into pooling",
        find=_find_means,
        rewrite=_depthwise_to_average,
        inverse="average-to-depthwise",
    ),
)
