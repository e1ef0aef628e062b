"""References: float64 of a module or a file, the error of the uncompiled network beside it, and its name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from ngbkit.device import reference
from ngbkit.device.reference import Reference
from ngbkit.errors import UnsupportedError
from ngbkit.workloads import exact, export
from ngbkit.workloads import onnx as onnx_source
from ngbkit.workloads.base import Network, TensorSpec, Workload

LINE = [TensorSpec(name="x", shape=(8,))]
ORT = "onnxruntime, graph optimisations off"


def of_module(module: nn.Module) -> Reference:
    network = Network(inputs=LINE, module=module.eval())
    return reference.of(network, 0, threads=1, onnx=lambda rows: pytest.fail("it is a module"))


def of_file(workload: Workload, folder: Path) -> Reference:
    network = onnx_source.build(workload, {})
    assert network.onnx is not None
    file = network.onnx
    return reference.of(
        network, 0, threads=1, onnx=lambda rows: export.specialise(file, rows, folder / f"{rows}.onnx", fold=False)
    )


def write(path: Path, nodes: list[Any], outputs: dict[str, int]) -> Workload:
    """A graph from x, of shape (batch, 8), with an 8 x 8 weight w."""
    weight = numpy_helper.from_array(np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32), "w")
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [weight],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("my.company", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return onnx_source.file(path)


class Several(nn.Module):
    """An exact output, one that cancels, and labels."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x * 2, (x + 1000) - 1000, x.argmax(dim=1)


class Overflowing(nn.Module):
    """Beyond float32, and within float64."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x.abs() * 300)


class Half(nn.Module):
    """Returns what NumPy does not have."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.bfloat16)


class Stubborn(nn.Module):
    """Takes float32 alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ torch.ones(8, 2)


class Random(nn.Module):
    """Gives something else at each call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.rand_like(x)


def test_every_output_has_its_own_error() -> None:
    """One that cancels loses digits, one that is exact none, and labels stay integers."""
    made = of_module(Several())

    assert ["f", "f", "i"] == [output.dtype.kind for output in made.outputs]
    assert (0.0, 0.0) == (made.errors[0], made.errors[2])
    assert 1e-6 < made.errors[1] < 1e-3
    assert made.errors[1] == made.baseline_rmse


def test_what_float32_cannot_hold_is_asked_of_no_compiler() -> None:
    """Where the network itself overflows, infinity is right."""
    (output,) = of_module(Overflowing()).outputs

    assert np.isinf(output).any()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (nn.Linear(8, 2), "torch eager, float64"),
        (Half(), "torch eager, float64"),
        (Stubborn(), "torch eager, float32"),
        (Random(), r"torch eager, float64; float32 is .* away from it, so that little can be told"),
    ],
)
def test_a_module_without_float64_is_held_against_itself(module: nn.Module, name: str) -> None:
    """And the reference says what it is."""
    assert re.fullmatch(name, of_module(module).name)


def test_a_reference_reads_back(tmp_path: Path) -> None:
    """With the type of each output; its name is kept elsewhere."""
    made = of_module(Several())
    made.write(tmp_path / "a.npz")

    back = reference.read(tmp_path / "a.npz")

    assert made.errors == back.errors
    for before, after in zip(made.outputs, back.outputs, strict=True):
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(before, after)


def test_a_file_has_a_reference_in_float64_too(mlp: Workload, tmp_path: Path) -> None:
    """And ONNX Runtime's own error is measured against it."""
    made = of_file(mlp, tmp_path)

    assert "onnx, float64" == made.name
    assert np.float64 == made.outputs[0].dtype
    assert 0 < made.baseline_rmse < 1e-6


def test_every_output_of_a_file_is_there(tmp_path: Path) -> None:
    """Floats in float64, labels as integers."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("ArgMax", ["y"], ["i"], axis=1, keepdims=0),
    ]
    made = of_file(write(tmp_path / "net.onnx", nodes, {"y": 1, "i": 7}), tmp_path)

    assert [np.dtype(np.float64), np.dtype(np.int64)] == [output.dtype for output in made.outputs]
    assert made.errors[1] == 0


def test_where_onnx_has_no_float64_the_runtimes_own_is_the_reference(
    mlp: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it says why."""

    def refuse(*args: object, **kwargs: object) -> list[np.ndarray]:
        raise UnsupportedError("it takes longer than 1 s")

    monkeypatch.setattr(exact, "run", refuse)

    made = of_file(mlp, tmp_path)

    assert f"{ORT}; no float64: it takes longer than 1 s" == made.name
    assert (0.0,) == made.errors
    assert 1 == len(made.outputs)


def test_a_float64_far_from_the_runtime_is_not_believed(
    mlp: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the two is wrong, and a wrong reference with a large error would let everything pass."""
    monkeypatch.setattr(exact, "run", lambda *args, **kwargs: [np.ones((2, 4))])

    made = of_file(mlp, tmp_path)

    assert made.name.startswith(f"{ORT}; no float64: it is ")
    assert (0.0,) == made.errors


def test_what_nothing_can_run_has_no_reference(tmp_path: Path) -> None:
    """The trials will show what is wrong with the file; the preparation does not fail for it."""
    nodes = [helper.make_node("Frobnicate", ["x"], ["y"], domain="my.company")]
    made = of_file(write(tmp_path / "net.onnx", nodes, {"y": 1}), tmp_path)

    assert () == made.outputs
    assert made.name.startswith("none: ")
    assert 0.0 == made.baseline_rmse


def test_a_single_sample_is_held_against_its_own_error(tmp_path: Path) -> None:
    """The first of two samples loses what the second, a thousand times larger, hides in their common error."""
    precise = np.array([[1.0, 2.0], [1000.0, 2000.0]])
    single = (precise + np.array([[1e-3, 0], [0, 0]])).astype(np.float32)

    made = reference._hold([single], [precise], "torch eager, float64")
    made.write(tmp_path / "reference.npz")
    back = reference.read(tmp_path / "reference.npz")

    assert made.errors_of(1) == back.errors_of(1) == back.first_errors
    assert made.errors_of(2) == made.errors_of(8) == back.errors
    assert back.first_errors[0] > 100 * back.errors[0]


def test_the_order_of_the_sums_may_make_the_larger_error() -> None:
    """What the network loses on the first sample by itself counts for it, and for both together."""
    precise, alone = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 2.02]])

    made = reference._hold([precise.copy()], [precise], "torch eager, float64", [alone])

    assert made.errors_of(1) == pytest.approx((np.sqrt(0.02**2 / 5),))
    assert made.errors_of(2) == pytest.approx((np.sqrt(0.02**2 / 30),))
    assert (0.0,) == reference._hold([precise], [precise], "torch eager, float64", [np.ones((1, 3))]).errors
