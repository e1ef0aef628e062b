"""Mean pooling as a depthwise convolution, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from ngbkit.optimizer.editing import Edit, attribute, is_kind, shape
from ngbkit.optimizer.rules.base import Rule
from ngbkit.optimizer.rules.convolution import convolutions, read, write


def _find_average(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """Mean pooling whose divisor is the same everywhere."""
    for node in graph:
        if not is_kind(node, "AveragePool") or attribute(node, "ceil_mode", 0) or len(shape(node.inputs[0]) or ()) != 4:
            continue
        padded = any(attribute(node, "pads", (0,)))
        plain = attribute(node, "auto_pad", "NOTSET") == "NOTSET" and set(attribute(node, "dilations", (1,))) == {1}
        if plain and (not padded or attribute(node, "count_include_pad", 0)):
            yield (node,)


def _average_to_depthwise(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    (node,) = nodes
    taken = node.inputs[0]
    known, kernel = shape(taken), attribute(node, "kernel_shape")
    assert taken is not None
    assert known is not None
    kind = taken.dtype.numpy() if taken.dtype is not None else np.dtype(np.float32)
    weight = np.full((known[1], 1, *kernel), 1 / np.prod(kernel), kind)
    window = {"strides": list(attribute(node, "strides", (1, 1))), "dilations": [1, 1], "group": known[1]}
    pads = attribute(node, "pads", (0, 0, 0, 0))
    edit.replace(node.outputs[0], write(edit, node, taken, weight, None, pads, **window))


def _find_means(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """Depthwise convolutions that take means."""
    for one in convolutions(graph):
        depthwise = one.group > 1 and one.weight.shape[:2] == (one.group, 1) and one.dilations == (1, 1)
        if (
            depthwise
            and not np.any(one.bias_or_zeros())
            and np.allclose(one.weight, 1 / np.prod(one.kernel), rtol=1e-6)
        ):
            yield (one.node,)


def _depthwise_to_average(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    one = read(nodes[0])
    assert one is not None
    window = {"kernel_shape": list(one.kernel), "strides": list(one.strides), "pads": list(one.pads)}
    edit.replace(one.made, edit.one(one.node, "AveragePool", one.taken, count_include_pad=1, **window))


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
