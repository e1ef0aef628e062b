"""A convolution as rules see it: read from a graph, and added to one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from ngbkit.predict.optimizer.editing import Edit, is_kind, read_attribute, read_constant

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """A convolution of images with constant weights, with every default filled in."""

    node: ir.Node
    source: ir.Value
    weight: Array
    bias: Array | None
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    group: int

    @property
    def output(self) -> ir.Value:
        return self.node.outputs[0]

    @property
    def kernel(self) -> tuple[int, int]:
        return int(self.weight.shape[2]), int(self.weight.shape[3])

    @property
    def window(self) -> dict[str, Any]:
        """The attributes other than the kernel and its padding."""
        return {"strides": list(self.strides), "dilations": list(self.dilations), "group": self.group}

    @property
    def dense_bias(self) -> Array:
        """The bias, or zeros without one."""
        return np.zeros(len(self.weight), self.weight.dtype) if self.bias is None else self.bias


def read_convolution(node: ir.Node | None) -> Convolution | None:
    """Read a node as a convolution; None for any other node, or if its weights are not constant."""
    if node is None or not is_kind(node, "Conv") or read_attribute(node, "auto_pad", "NOTSET") != "NOTSET":
        return None
    weight = read_constant(node.inputs[1])
    biased = len(node.inputs) > 2 and node.inputs[2] is not None
    bias = read_constant(node.inputs[2]) if biased else None
    if node.inputs[0] is None or weight is None or weight.ndim != 4 or (biased and bias is None):
        return None
    return Convolution(
        node=node,
        source=node.inputs[0],
        weight=weight,
        bias=bias,
        strides=read_attribute(node, "strides", (1, 1)),
        pads=read_attribute(node, "pads", (0, 0, 0, 0)),
        dilations=read_attribute(node, "dilations", (1, 1)),
        group=read_attribute(node, "group", 1),
    )


def add_convolution(
    edit: Edit,
    successor: ir.Node,
    source: ir.Value,
    weight: Array,
    bias: Array | None,
    pads: Sequence[int],
    **window: Any,
) -> ir.Value:
    """Add a convolution before a node, and return its output."""
    inputs = [source, edit.add_constant(weight, successor)]
    if bias is not None:
        inputs.append(edit.add_constant(bias.astype(weight.dtype), successor))
    return edit.compute(successor, "Conv", *inputs, kernel_shape=list(weight.shape[2:]), pads=list(pads), **window)


def find_convolutions(graph: ir.Graph) -> Iterator[Convolution]:
    """Iterate over the convolutions of a graph, in its order."""
    return (conv for node in graph if (conv := read_convolution(node)) is not None)


def is_centred(conv: Convolution) -> bool:
    """Return whether the window is in the middle of its padding, so that it contains smaller windows."""
    height, width = conv.kernel
    padding = (height // 2, width // 2, height // 2, width // 2)
    return height % 2 == 1 and width % 2 == 1 and conv.dilations == (1, 1) and conv.pads == padding


def pad_kernel(weight: Array, kernel: Sequence[int]) -> Array:
    """Pad a window with zeros to the size of the kernel."""
    padding = [((side - size) // 2,) * 2 for side, size in zip(kernel, weight.shape[2:], strict=True)]
    return np.pad(weight, [(0, 0), (0, 0), *padding])
