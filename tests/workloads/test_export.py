"""Exports to ONNX: named inputs, ordered outputs, static shapes at every batch size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional

from ngbkit.errors import UnsupportedError
from ngbkit.workloads import blocks, export, feeds, onnx_binding, timm
from ngbkit.workloads import onnx as onnx_source
from ngbkit.workloads.base import BATCH, Network, TensorSpec
from ngbkit.workloads.onnx_binding import specialise
from ngbkit.workloads.onnx_traversal import find_external_files

LINE = [TensorSpec(name="values", shape=(BATCH, 4))]


class Nested(nn.Module):
    """Takes two inputs, and returns nested outputs whose shapes show their order."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, left: torch.Tensor, ids: torch.Tensor) -> dict[str, object]:
        return {"z": self.linear(left), "a": [left * ids, (left.sum(1),)]}


class Fixed(nn.Module):
    """Fixes its batch size, by a loop over the rows."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.linear(values[row]) for row in range(int(values.shape[0]))])


class Foreign(nn.Module):
    """Uses an operator that ONNX lacks."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return torch.special.bessel_j0(values)


def shapes(path: Path) -> list[list[int | str]]:
    return [
        [dimension.dim_value or dimension.dim_param for dimension in value.type.tensor_type.shape.dim]
        for value in onnx.load(path).graph.input
    ]


def run(path: Path, network: Network, batch_size: int) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    arrays = feeds.draw(network.inputs, network.examples, batch_size, 0)
    return session.run(None, {spec.name: array for spec, array in zip(network.inputs, arrays, strict=True)})


def run_torch(network: Network, batch_size: int) -> list[np.ndarray]:
    arrays = feeds.draw(network.inputs, network.examples, batch_size, 0)
    with torch.no_grad():
        return [output.numpy() for output in export.flatten(network.module(*map(torch.from_numpy, arrays)))]


NETWORKS = {
    "convolution": lambda: blocks.build(blocks.conv(size=(8, 8)), {"width": 4, "depth": 2}),
    "attention": lambda: blocks.build(blocks.mha(heads=2), {"width": 8, "depth": 2}),
    "transformer": lambda: timm.build(timm.model("test_vit", img_size=64), {}),
    "nested": lambda: Network(
        inputs=[TensorSpec(name="first", shape=(BATCH, 4)), TensorSpec(name="second", shape=(BATCH, 4), dtype="int64")],
        module=Nested().eval(),
    ),
    "fixed": lambda: Network(inputs=LINE, module=Fixed().eval()),
}


@pytest.mark.guard
@pytest.mark.parametrize("name", NETWORKS)
def test_a_file_for_every_batch_size_computes_the_network(name: str, tmp_path: Path) -> None:
    """The exported file of each batch size is static and computes the network's outputs."""
    network = NETWORKS[name]()

    paths = export.export_for(network, tmp_path, [1, 3], 0)

    assert [1, 3] == list(paths)
    for batch_size, path in paths.items():
        assert [list(spec.bind(batch_size)) for spec in network.inputs] == shapes(path)
        for expected, actual in zip(run_torch(network, batch_size), run(path, network, batch_size), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-5)


def test_arithmetic_on_shapes_is_folded_away(tmp_path: Path) -> None:
    """A bound file contains no operator on shapes alone."""
    network = NETWORKS["transformer"]()

    bound = export.export_for(network, tmp_path, [4], 0)[4]

    assert "Shape" in {node.op_type for node in onnx.load(tmp_path / "batch-any.onnx").graph.node}
    assert "Shape" not in {node.op_type for node in onnx.load(bound).graph.node}


def test_a_batch_that_cannot_be_dynamic_is_unsupported(tmp_path: Path) -> None:
    """The dynamic export of a module with a fixed batch is rejected."""
    with pytest.raises(UnsupportedError, match="to ONNX with a dynamic batch: "):
        export.export(Network(inputs=LINE, module=Fixed().eval()), tmp_path / "fixed.onnx", seed=0)


class Deciding(nn.Module):
    """Decides by a value, and attends in groups."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        keys = self.linear(values)[:, None, None]
        if keys.sum() > 1e9:
            keys = keys * 2
        queries = keys.expand(-1, 2, 3, -1)
        return functional.scaled_dot_product_attention(queries, keys, keys, enable_gqa=True)


def test_torchscript_exports_what_torch_export_refuses(tmp_path: Path) -> None:
    """It keeps what the values of the inputs decide; the exporter is known, and the outputs are those of the module."""
    network = Network(inputs=LINE, module=Deciding().eval())

    paths = export.export_for(network, tmp_path, [2], 0)

    assert network.module is not None
    arrays = feeds.draw(LINE, {}, 2, 0)
    expected = network.module(torch.from_numpy(arrays[0])).detach().numpy()
    np.testing.assert_allclose(run(paths[2], network, 2)[0], expected, rtol=1e-4, atol=1e-5)
    assert "TorchScript" == export.read_exporter(paths[2])


def test_a_refusal_has_the_line_and_a_remedy(tmp_path: Path) -> None:
    """The error has the line of the network, its code, the reason and the remedy, for both exporters."""

    class Both(Deciding):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            return torch.special.bessel_j0(super().forward(values))

    with pytest.raises(UnsupportedError) as caught:
        export.export_for(Network(inputs=LINE, module=Both().eval()), tmp_path, [2], 0)

    assert "workloads/test_export.py, line " in str(caught.value)
    assert "`if keys.sum() > 1e9:`: a value that the network computes decides what runs. Decide by" in str(caught.value)
    assert "TorchScript: Exporting the operator 'aten::special_bessel_j0'" in str(caught.value)


def test_an_operator_that_onnx_lacks_is_unsupported(tmp_path: Path) -> None:
    """The reason names the operator."""
    with pytest.raises(UnsupportedError, match=r"to ONNX at batch size 2: .*bessel_j0"):
        export.export_for(Network(inputs=LINE, module=Foreign().eval()), tmp_path, [2], 0)


def test_exporting_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """No output of the exporter reaches the notebook."""
    export.export(Network(inputs=LINE, module=nn.Linear(4, 2).eval()), tmp_path / "line.onnx", seed=0)

    assert ("", "") == capfd.readouterr()


def test_weights_too_large_for_one_file_are_saved_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both the exported file and the bound one, in another folder, have external data."""
    for module in (export, onnx_binding):
        monkeypatch.setattr(module, "EMBEDDED_BYTES", 100)
    network = Network(inputs=[TensorSpec(name="x", shape=(BATCH, 64))], module=nn.Linear(64, 64).eval())
    dynamic, bound = tmp_path / "a" / "big.onnx", tmp_path / "b" / "big-3.onnx"
    dynamic.parent.mkdir()
    bound.parent.mkdir()
    export.export(network, dynamic, seed=0)

    specialise(dynamic, 3, bound)

    assert {"big.onnx.data": 64 * 64 * 4} == {
        name: size - size % 4096
        for name, size in find_external_files(onnx.load(bound, load_external_data=False)).items()
    }
    np.testing.assert_allclose(run(bound, network, 3)[0], run_torch(network, 3)[0], rtol=1e-4, atol=1e-5)


def test_a_file_with_a_fixed_batch_supports_no_other(tmp_path: Path, mlp_file: Path) -> None:
    """The error of another batch size names the fixed one."""
    fixed = specialise(mlp_file, 3, tmp_path / "fixed.onnx")
    network = onnx_source.build(onnx_source.file(fixed), {})

    assert [3] == list(export.export_for(network, tmp_path, [3], 0))
    with pytest.raises(UnsupportedError, match=r"invalid batch size: got 4; expected 3, .* Sweep batch size 3"):
        export.export_for(network, tmp_path, [4], 0)
    with pytest.raises(UnsupportedError, match="got 4; expected 3"):
        specialise(fixed, 4, tmp_path / "four.onnx")


def test_nested_outputs_are_flattened_in_order() -> None:
    """Nested outputs are flattened depth first, tensors only, in the order of insertion."""
    first, second, third = (torch.full((1,), float(index)) for index in range(3))

    assert [first, second, third] == export.flatten({"z": first, "a": [second, (None, 5, third)]})
    assert [first] == export.flatten(first)
