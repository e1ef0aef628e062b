"""The first operator that overflows in f16 is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper
from tasks import build_task

from ngbkit.compilers import nvidia
from ngbkit.device import overflow
from ngbkit.workloads.base import BATCH, TensorSpec

INPUTS = [TensorSpec(name="x", shape=(BATCH, 8))]
ARRAYS = [np.linspace(100, 900, 16, dtype=np.float32).reshape(2, 8)]


def test_the_node_of_an_onnx_file_is_named(tmp_path: Path) -> None:
    """The square of a normalisation over large values is beyond f16, and what follows it is not blamed."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
        helper.make_node("Mul", ["r", "r"], ["s"], name="square"),
        helper.make_node("Sqrt", ["s"], ["y"], name="root"),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 8]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "normalisation", values[:1], values[1:])
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    half = tmp_path / "half.onnx"
    half.write_bytes(nvidia.convert_to_f16(path))
    overflowing, exact = (
        build_task(tmp_path, onnx=file, inputs=INPUTS, arrays=ARRAYS, batch_size=2) for file in (half, path)
    )

    assert "; the first operator that overflows is Mul square" == overflow.locate(overflowing, [ARRAYS])
    assert "" == overflow.locate(exact, [ARRAYS])


def test_the_operator_of_a_module_is_named(tmp_path: Path) -> None:
    """A layer that scales beyond f16 is named with its class and its operator."""
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2)).eval()
    with torch.no_grad():
        module[0].weight.fill_(60)
    task = build_task(tmp_path, form="module", module=module.half(), inputs=INPUTS, arrays=ARRAYS, batch_size=2)

    assert overflow.locate(task, [ARRAYS]).endswith("in 0 (Linear)")
