"""References: float64 outputs of a module or a file, the uncompiled network's error, and the name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from function_modules import FunctionModule, build_module_reference
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from ngbkit.device import reference
from ngbkit.device.reference import Reference
from ngbkit.errors import UnsupportedError
from ngbkit.workloads import exact
from ngbkit.workloads import onnx as onnx_source
from ngbkit.workloads.base import Workload
from ngbkit.workloads.onnx_binding import specialise

ORT = "onnxruntime, graph optimisations off"


def build_file_reference(workload: Workload, folder: Path) -> Reference:
    network = onnx_source.build(workload, {})
    file = network.onnx
    return reference.build_reference(
        network, 0, threads=1, onnx=lambda rows: specialise(file, rows, folder / f"{rows}.onnx", fold=False)
    )


def write_graph(path: Path, nodes: list[Any], outputs: dict[str, int]) -> Workload:
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


# An exact output, one that cancels, and labels.
SEVERAL = FunctionModule(lambda x: (x * 2, (x + 1000) - 1000, x.argmax(dim=1)))
# Beyond float32, and within float64.
OVERFLOWING = FunctionModule(lambda x: torch.exp(x.abs() * 300))
# Returns a dtype that NumPy lacks.
HALF = FunctionModule(lambda x: x.to(torch.bfloat16))
# Accepts float32 alone.
STUBBORN = FunctionModule(lambda x: x @ torch.ones(8, 2))
# Returns different values at each call.
RANDOM = FunctionModule(torch.rand_like)
# Noise that is small beside its outputs, and larger than the rounding of float32.
NOISY = FunctionModule(lambda x: x + 1e-2 * torch.randn_like(x))
# One output is infinite everywhere, and the other is not.
MASKED = FunctionModule(lambda x: (x * 0 - float("inf"), x))


def build_broken(value: float) -> FunctionModule:
    """Build a module that returns labels, and numbers that are all the same."""
    return FunctionModule(lambda x: (x * 0 + value, x.argmax(dim=1)))


class Counting(nn.Module):
    """Its outputs depend on how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


def test_every_output_has_its_own_error() -> None:
    """One that cancels loses digits, one that is exact none, and labels stay integers."""
    expected = build_module_reference(SEVERAL)

    assert ["f", "f", "i"] == [output.dtype.kind for output in expected.outputs]
    assert (0.0, 0.0) == (expected.errors[0], expected.errors[2])
    assert 1e-6 < expected.errors[1] < 1e-3
    assert expected.errors[1] == expected.baseline_rmse


def test_an_overflow_of_float32_is_expected() -> None:
    """The reference is infinite where the network itself overflows float32."""
    (output,) = build_module_reference(OVERFLOWING).outputs

    assert np.isinf(output).any()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (nn.Linear(8, 2), "torch eager, float64"),
        (HALF, "torch eager, float64"),
        (STUBBORN, r"torch eager, float32; no float64: .*"),
    ],
)
def test_a_module_without_float64_is_its_own_reference(module: nn.Module, name: str) -> None:
    """The name of the reference says so."""
    assert re.fullmatch(name, build_module_reference(module).name)


NO_NUMBER = "NaN or infinite, all of them.*--inputs"
NO_REPETITION = "random or keeps a state.*make its noise or state an input"


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        (build_broken(float("nan")), NO_NUMBER),
        (build_broken(float("inf")), NO_NUMBER),
        (RANDOM, NO_REPETITION),
        (NOISY, NO_REPETITION),
        (Counting(), NO_REPETITION),
        (build_broken(1.0), ""),
        (MASKED, ""),
        (OVERFLOWING, ""),
        (SEVERAL, ""),
        (nn.Dropout(0.5), ""),
    ],
)
def test_a_network_with_which_nothing_can_be_compared_says_so(module: nn.Module, problem: str) -> None:
    """Every compiler would be equivalent to NaN, and to noise."""
    actual = build_module_reference(module).problem

    assert re.search(problem, actual) if problem else not actual


@pytest.mark.parametrize(
    ("nodes", "problem"),
    [
        ([helper.make_node("RandomNormalLike", ["x"], ["y"])], NO_REPETITION),
        ([helper.make_node("RandomNormalLike", ["x"], ["y"], seed=1.0)], NO_REPETITION),
        ([helper.make_node("Sub", ["x", "x"], ["z"]), helper.make_node("Div", ["z", "z"], ["y"])], NO_NUMBER),
        ([helper.make_node("Relu", ["x"], ["y"])], ""),
    ],
)
def test_a_file_with_which_nothing_can_be_compared_says_so(nodes: list[Any], problem: str, tmp_path: Path) -> None:
    """The reference of a random network has a problem, even if its noise has a seed."""
    actual = build_file_reference(write_graph(tmp_path / "net.onnx", nodes, {"y": TensorProto.FLOAT}), tmp_path).problem

    assert re.search(problem, actual) if problem else not actual


def test_a_trial_without_a_reference_is_not_checked() -> None:
    """A trial without a reference is not checked, and its verdict has the reason."""
    expected = build_module_reference(build_broken(float("nan")))

    verdict = reference.judge(expected, list(expected.outputs), 2)

    assert expected.problem == verdict.unchecked
    assert verdict.check is None


def test_a_reference_reads_back(tmp_path: Path) -> None:
    """A reference keeps its outputs, their types and its errors in a file."""
    expected = build_module_reference(SEVERAL)
    expected.write(tmp_path / "a.npz")

    back = reference.read_reference(tmp_path / "a.npz")

    assert expected.errors == back.errors
    for before, after in zip(expected.outputs, back.outputs, strict=True):
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(before, after)


def test_a_file_has_a_reference_in_float64_too(mlp: Workload, tmp_path: Path) -> None:
    """An ONNX file has a float64 reference, which gives ONNX Runtime's own error."""
    expected = build_file_reference(mlp, tmp_path)

    assert "onnx, float64" == expected.name
    assert np.float64 == expected.outputs[0].dtype
    assert 0 < expected.baseline_rmse < 1e-6


def test_every_output_of_a_file_has_a_reference(tmp_path: Path) -> None:
    """Every output of a file has a reference: floats in float64, and labels as integers."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("ArgMax", ["y"], ["i"], axis=1, keepdims=0),
    ]
    expected = build_file_reference(write_graph(tmp_path / "net.onnx", nodes, {"y": 1, "i": 7}), tmp_path)

    assert [np.dtype(np.float64), np.dtype(np.int64)] == [output.dtype for output in expected.outputs]
    assert expected.errors[1] == 0


def test_without_float64_the_reference_is_the_runtimes(
    mlp: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference is the runtime's own if float64 fails, and its name has the reason."""

    def refuse(*args: object, **kwargs: object) -> list[np.ndarray]:
        raise UnsupportedError("it takes longer than 1 s")

    monkeypatch.setattr(exact, "run", refuse)

    expected = build_file_reference(mlp, tmp_path)

    assert f"{ORT}; no float64: it takes longer than 1 s" == expected.name
    assert expected.is_own
    assert expected.errors[0] < 1e-5
    assert 1 == len(expected.outputs)


def test_a_float64_far_from_the_runtime_is_rejected(
    mlp: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the two is wrong, and a wrong reference with a large error would accept everything."""
    monkeypatch.setattr(exact, "run", lambda *args, **kwargs: [np.ones((2, 4))])

    expected = build_file_reference(mlp, tmp_path)

    assert expected.name.startswith(f"{ORT}; no float64: it is ")
    assert expected.errors[0] < 1e-5


def test_a_file_that_nothing_can_run_has_no_reference(tmp_path: Path) -> None:
    """The preparation does not fail; the trials will show the fault of the file."""
    nodes = [helper.make_node("Frobnicate", ["x"], ["y"], domain="my.company")]
    expected = build_file_reference(write_graph(tmp_path / "net.onnx", nodes, {"y": 1}), tmp_path)

    assert () == expected.outputs
    assert expected.name.startswith("none: ")
    assert 0.0 == expected.baseline_rmse
