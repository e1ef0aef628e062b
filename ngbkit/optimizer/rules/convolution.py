"""A convolution as rules see it: read from a graph, and written into one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from ngbkit.optimizer.editing import Edit, array, attribute, is_kind

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """A convolution of images with constant weights, and what it is asked for, every default written out."""

    node: ir.Node
    taken: ir.Value
    weight: Array
    bias: Array | None
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    group: int

    @property
    def made(self) -> ir.Value:
        return self.node.outputs[0]

    @property
    def kernel(self) -> tuple[int, int]:
        return int(self.weight.shape[2]), int(self.weight.shape[3])

    @property
    def window(self) -> dict[str, Any]:
        """Its attributes, but for the kernel and its padding."""
        return {"strides": list(self.strides), "dilations": list(self.dilations), "group": self.group}

    def bias_or_zeros(self) -> Array:
        return np.zeros(len(self.weight), self.weight.dtype) if self.bias is None else self.bias


def read(node: ir.Node | None) -> Convolution | None:
    """A node as a convolution; None where it is something else, or its weights are no constants."""
    if node is None or not is_kind(node, "Conv") or attribute(node, "auto_pad", "NOTSET") != "NOTSET":
        return None
    weight = array(node.inputs[1])
    biased = len(node.inputs) > 2 and node.inputs[2] is not None
    bias = array(node.inputs[2]) if biased else None
    if node.inputs[0] is None or weight is None or weight.ndim != 4 or (biased and bias is None):
        return None
    return Convolution(
        node=node,
        taken=node.inputs[0],
        weight=weight,
        bias=bias,
        strides=attribute(node, "strides", (1, 1)),
        pads=attribute(node, "pads", (0, 0, 0, 0)),
        dilations=attribute(node, "dilations", (1, 1)),
        group=attribute(node, "group", 1),
    )


def write(
    edit: Edit, before: ir.Node, taken: ir.Value, weight: Array, bias: Array | None, pads: Sequence[int], **window: Any
) -> ir.Value:
    """A new convolution in front of a node."""
    inputs = [taken, edit.constant(weight, before)]
    if bias is not None:
        inputs.append(edit.constant(bias.astype(weight.dtype), before))
    return edit.one(before, "Conv", *inputs, kernel_shape=list(weight.shape[2:]), pads=list(pads), **window)


def convolutions(graph: ir.Graph) -> Iterator[Convolution]:
    """Those of a graph, in its order."""
    return (found for node in graph if (found := read(node)) is not None)


def centred(one: Convolution) -> bool:
    """Whether the window stands in the middle of its padding, so that a smaller one fits into it."""
    height, width = one.kernel
    around = (height // 2, width // 2, height // 2, width // 2)
    return height % 2 == 1 and width % 2 == 1 and one.dilations == (1, 1) and one.pads == around


def grown(weight: Array, kernel: Sequence[int]) -> Array:
    """A window with zeros around it, as large as the kernel."""
    around = [((side - own) // 2,) * 2 for side, own in zip(kernel, weight.shape[2:], strict=True)]
    return np.pad(weight, [(0, 0), (0, 0), *around])
