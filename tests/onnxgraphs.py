"""Small ONNX graphs, written by hand, for the tests of what is made of graphs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ngbkit.predictor.graphs import Graph, read

Branch = Sequence[str]


class Builder:
    """Adds nodes one by one; every method gives the name of the value that it made."""

    def __init__(self, channels: int = 8, size: int = 16) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.shape = [1, channels, size, size]
        self.channels = {"x": channels}
        self.drawn = np.random.default_rng(0)

    def add(self, kind: str, *taken: str, **attributes: Any) -> str:
        """Any operator that keeps the channels of the first value that it takes."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(taken), [name], name=f"{kind}{len(self.nodes)}", **attributes))
        self.channels[name] = self.channels[taken[0]]
        return name

    def conv(self, value: str, out: int, kernel: int = 3, group: int = 1, stride: int = 1) -> str:
        """A convolution that keeps height and width, unless it has a stride."""
        weight = f"w{len(self.weights)}"
        shape = (out, self.channels[value] // group, kernel, kernel)
        drawn = self.drawn.standard_normal(shape).astype(np.float32) / np.sqrt(np.prod(shape[1:]))
        self.weights.append(numpy_helper.from_array(drawn.astype(np.float32), weight))
        about = {"kernel_shape": [kernel] * 2, "pads": [kernel // 2] * 4, "group": group, "strides": [stride] * 2}
        name = self.add("Conv", value, weight, **about)
        self.channels[name] = out
        return name

    def model(self, *outputs: str) -> Any:
        """The whole, its first dimension open."""
        drawn = helper.make_graph(
            self.nodes,
            "graph",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *self.shape[1:]])],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            self.weights,
        )
        return helper.make_model(drawn, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def residual(folder: Path, width: int = 8, blocks: int = 2, kernel: int = 3, size: int = 16) -> Path:
    """Blocks of a convolution, a ReLU and a sum with what came in; a file."""
    build = Builder(width, size)
    value = "x"
    for _ in range(blocks):
        value = build.add("Add", build.add("Relu", build.conv(value, width, kernel)), value)
    return write(build.model(value), folder / f"residual-{width}-{blocks}-{kernel}-{size}.onnx")


def write(model: Any, path: Path) -> Path:
    onnx.save(model, path)
    return path


def graph(model: Any, folder: Path, batch_size: int = 1) -> Graph:
    """A model as a graph."""
    return read(write(model, folder / "model.onnx"), batch_size)
