"""Compiled networks for `gpu_checks.py`: as a device compiles them, in this process."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit import registry
from ngbkit.compilers.base import Compiler, Form, Program, Task, Tuning
from ngbkit.workloads import feeds, timm
from ngbkit.workloads.base import BATCH, Network, TensorSpec
from ngbkit.workloads.export import export_for

ACCELERATOR = "cuda"
THREADS = 4


def load_compiler(name: str) -> Compiler:
    loaded: Compiler = registry.load(registry.COMPILERS, name)
    return loaded


def build_resnet() -> Network:
    return timm.build(timm.model("resnet18"), {})


def build_products() -> Network:
    """Build a network of one convolution and one product, large enough for a GPU's matrix units."""
    import torch
    from torch import nn

    class Products(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(128, 128, 3, padding=1, bias=False)
            self.product = nn.Linear(1024, 1024, bias=False)

        def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.convolution(image), self.product(image.flatten(2))

    torch.manual_seed(0)
    return Network(inputs=[TensorSpec(name="input", shape=(BATCH, 128, 32, 32))], module=Products().eval())


def compile_network(network: Network, compiler: str, batch_size: int, folder: Path, **options: Any) -> Program:
    record = load_compiler(compiler)
    form = next(iter(record.forms))
    folder.mkdir(exist_ok=True)
    path = export_for(network, folder, [batch_size], seed=0)[batch_size] if form == "onnx" else None
    arrays = feeds.draw(network.inputs, network.examples, batch_size, seed=0)
    return record.compile(build_task(record, form, network, path, arrays, folder, options))


def compile_onnx(path: Path, record: Compiler, folder: Path, *, shape: tuple[int, ...]) -> Program:
    folder.mkdir()
    arrays = [np.random.default_rng(0).standard_normal((1, *shape), np.float32)]
    network = Network(inputs=[TensorSpec(name="input", shape=(BATCH, *shape))], module=None)
    return record.compile(build_task(record, "onnx", network, path, arrays, folder, {}))


def build_task(
    record: Compiler,
    form: Form,
    network: Network,
    path: Path | None,
    arrays: list[np.ndarray],
    folder: Path,
    options: Mapping[str, Any],
) -> Task:
    return Task(
        form=form,
        # A compiler moves the module to its device.
        module=copy.deepcopy(network.module) if form == "module" else None,
        onnx=path,
        inputs=network.inputs,
        arrays=arrays,
        batch_size=len(arrays[0]),
        options=record.settle(options),
        threads=THREADS,
        cache=folder,
        accelerator=ACCELERATOR,
        tuning=Tuning(folder=folder / "tuning"),
    )


def write_graph(path: Path, operators: tuple[str, ...]) -> Path:
    """Write a chain of operators on 3 x 16 x 16."""
    import onnx

    names = ["input", *(f"value{number}" for number in range(1, len(operators))), "output"]
    nodes = [
        onnx.helper.make_node(operator, [before], [after])
        for operator, before, after in zip(operators, names[:-1], names[1:], strict=True)
    ]
    shapes = {"input": [1, 3, 16, 16], "output": [1, 3]}
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    graph = onnx.helper.make_graph(nodes, "chain", values[:1], values[1:])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10), path)
    return path
