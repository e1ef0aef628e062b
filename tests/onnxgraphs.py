"""Small ONNX graphs, built node by node, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Branch = Sequence[str]


class Builder:
    """Adds nodes to a graph; every method returns the name of its output value."""

    def __init__(self, channels: int = 8, size: int = 16) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.shape: list[Any] = [1, channels, size, size]
        self.channels = {"x": channels}
        self.generator = np.random.default_rng(0)

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add an operator whose output has the channels of its first input."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name=f"{operator}{len(self.nodes)}", **attributes))
        self.channels[name] = self.channels[inputs[0]]
        return name

    def conv(self, value: str, out: int, kernel: int = 3, group: int = 1, stride: int = 1) -> str:
        """Add a convolution that keeps height and width, unless it has a stride."""
        weight = f"w{len(self.weights)}"
        shape = (out, self.channels[value] // group, kernel, kernel)
        values = self.generator.standard_normal(shape).astype(np.float32) / np.sqrt(np.prod(shape[1:]))
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), weight))
        attributes = {"kernel_shape": [kernel] * 2, "pads": [kernel // 2] * 4, "group": group, "strides": [stride] * 2}
        name = self.add("Conv", value, weight, **attributes)
        self.channels[name] = out
        return name

    def model(self, *outputs: str) -> Any:
        """Build the model, its batch dynamic; its output is the last value, unless others are given."""
        proto = helper.make_graph(
            self.nodes,
            "graph",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *self.shape[1:]])],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs or self.nodes[-1].output],
            self.weights,
        )
        return helper.make_model(proto, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def build_branches(blocks: int, width: int = 8, size: int = 16) -> Builder:
    """Build blocks, each a 3x3 and a 1x1 convolution, their sum and a ReLU."""
    builder, value = Builder(width, size), "x"
    for _ in range(blocks):
        branches = [builder.conv(value, width, kernel) for kernel in (3, 1)]
        value = builder.add("Relu", builder.add("Add", *branches))
    return builder


def residual(folder: Path, width: int = 8, blocks: int = 2, kernel: int = 3, size: int = 16) -> Path:
    """Write a stack of residual blocks, each a convolution and a ReLU, to a file."""
    builder = Builder(width, size)
    value = "x"
    for _ in range(blocks):
        value = builder.add("Add", builder.add("Relu", builder.conv(value, width, kernel)), value)
    return write(builder.model(value), folder / f"residual-{width}-{blocks}-{kernel}-{size}.onnx")


def quantise_input(source: Path, path: Path, scale: float) -> Path:
    """Write a file whose input ``x`` is rounded to steps of a scale: a QDQ file that a user brings."""
    model = onnx.load(source)
    for node in model.graph.node:
        node.input[:] = ["dequantised" if name == "x" else name for name in node.input]
    steps = [numpy_helper.from_array(np.float32(scale), "scale"), numpy_helper.from_array(np.int8(0), "zero")]
    model.graph.initializer.extend(steps)
    model.graph.node.insert(0, helper.make_node("DequantizeLinear", ["quantised", "scale", "zero"], ["dequantised"]))
    model.graph.node.insert(0, helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["quantised"]))
    return write(model, path)


def write(model: Any, path: Path) -> Path:
    onnx.save(model, path)
    return path
