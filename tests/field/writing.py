"""ONNX files from a text, with seeded weights; and Python files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import parser

from ngbkit.workloads.base import Workload

Build = Callable[[Path], Path | Workload]
_IMPORTS = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"


def build_model(
    text: str,
    *,
    opset: int = 17,
    ir_version: int = 8,
    domains: Mapping[str, int] | None = None,
    values: Mapping[str, np.ndarray] | None = None,
    scale: float = 0.3,
    seed: int = 7,
) -> onnx.ModelProto:
    """Parse a graph in ONNX's text form; each value that it declares and no node computes becomes a weight.

    `values` are the weights of these names; the others are normal noise of that `scale`.
    """
    versions = {"": opset, **(domains or {})}
    imports = ", ".join(f'"{domain}": {version}' for domain, version in versions.items())
    model = parser.parse_model(f"<ir_version: {ir_version}, opset_import: [{imports}]>\n{text}")
    generator = np.random.default_rng(seed)
    computed = {output for node in model.graph.node for output in node.output}
    for info in [info for info in model.graph.value_info if info.name not in computed]:
        tensor = info.type.tensor_type
        shape = [dimension.dim_value for dimension in tensor.shape.dim]
        noise = generator.standard_normal(shape) * scale
        array = (values or {}).get(info.name, noise)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array, dtype), info.name))
        model.graph.value_info.remove(info)
    return model


def write_graph(
    text: str,
    *,
    name: str = "net.onnx",
    opset: int = 17,
    ir_version: int = 8,
    domains: Mapping[str, int] | None = None,
    values: Mapping[str, np.ndarray] | None = None,
    scale: float = 0.3,
    change: Callable[[onnx.ModelProto], None] = lambda model: None,
) -> Build:
    """Return a function that writes the file of `build_model` into a folder; `change` edits the model before."""

    def build(folder: Path) -> Path:
        model = build_model(text, opset=opset, ir_version=ir_version, domains=domains, values=values, scale=scale)
        change(model)
        path = folder / name
        path.write_bytes(model.SerializeToString())
        return path

    return build


def write_source(text: str, **siblings: str) -> Build:
    """Return a function that writes a Python file which imports torch, and files beside it, into a folder."""

    def build(folder: Path) -> Path:
        for name, sibling in siblings.items():
            (folder / f"{name}.py").write_text(_IMPORTS + sibling)
        path = folder / "net.py"
        path.write_text(_IMPORTS + text)
        return path

    return build
