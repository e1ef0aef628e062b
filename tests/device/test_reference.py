"""References: float64 outputs of a module or a file, the uncompiled network's error, and the name."""

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
from ngbkit.device.equivalence import find_void
from ngbkit.device.reference import Reference
from ngbkit.device.reference_runs import Attempt, Runs
from ngbkit.errors import UnsupportedError
from ngbkit.workloads import exact
from ngbkit.workloads import onnx as onnx_source
from ngbkit.workloads.base import BATCH, Network, TensorSpec, Workload
from ngbkit.workloads.onnx_binding import specialise

LINE = [TensorSpec(name="x", shape=(BATCH, 8))]
ORT = "onnxruntime, graph optimisations off"


def build_module_reference(module: nn.Module) -> Reference:
    network = Network(inputs=LINE, module=module.eval())
    return reference.build_reference(network, 0, threads=1, onnx=lambda rows: pytest.fail("it is a module"))


def build_file_reference(workload: Workload, folder: Path) -> Reference:
    network = onnx_source.build(workload, {})
    assert network.onnx is not None
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


class Several(nn.Module):
    """An exact output, one that cancels, and labels."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x * 2, (x + 1000) - 1000, x.argmax(dim=1)


class Overflowing(nn.Module):
    """Beyond float32, and within float64."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x.abs() * 300)


class Half(nn.Module):
    """Returns a dtype that NumPy lacks."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.bfloat16)


class Stubborn(nn.Module):
    """Accepts float32 alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ torch.ones(8, 2)


class Random(nn.Module):
    """Returns different values at each call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.rand_like(x)


def test_every_output_has_its_own_error() -> None:
    """One that cancels loses digits, one that is exact none, and labels stay integers."""
    expected = build_module_reference(Several())

    assert ["f", "f", "i"] == [output.dtype.kind for output in expected.outputs]
    assert (0.0, 0.0) == (expected.errors[0], expected.errors[2])
    assert 1e-6 < expected.errors[1] < 1e-3
    assert expected.errors[1] == expected.baseline_rmse


def test_an_overflow_of_float32_is_expected() -> None:
    """Where the network itself overflows, infinity is right."""
    (output,) = build_module_reference(Overflowing()).outputs

    assert np.isinf(output).any()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (nn.Linear(8, 2), "torch eager, float64"),
        (Half(), "torch eager, float64"),
        (Stubborn(), r"torch eager, float32; no float64: .*"),
    ],
)
def test_a_module_without_float64_is_its_own_reference(module: nn.Module, name: str) -> None:
    """The name of the reference says so."""
    assert re.fullmatch(name, build_module_reference(module).name)


class Broken(nn.Module):
    """Returns labels, and numbers that are all the same."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 0 + self.value, x.argmax(dim=1)


class Masked(nn.Module):
    """One output is infinite everywhere, and the other is not."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 0 - float("inf"), x


class Counting(nn.Module):
    """Its outputs depend on how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


class Noisy(nn.Module):
    """Noise that is small beside its outputs, and larger than the rounding of float32."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1e-2 * torch.randn_like(x)


NAN, RANDOM = "NaN or infinite, all of them.*--inputs", "random or keeps a state.*make its noise or state an input"


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        (Broken(float("nan")), NAN),
        (Broken(float("inf")), NAN),
        (Random(), RANDOM),
        (Noisy(), RANDOM),
        (Counting(), RANDOM),
        (Broken(1.0), ""),
        (Masked(), ""),
        (Overflowing(), ""),
        (Several(), ""),
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
        ([helper.make_node("RandomNormalLike", ["x"], ["y"])], RANDOM),
        ([helper.make_node("RandomNormalLike", ["x"], ["y"], seed=1.0)], RANDOM),
        ([helper.make_node("Sub", ["x", "x"], ["z"]), helper.make_node("Div", ["z", "z"], ["y"])], NAN),
        ([helper.make_node("Relu", ["x"], ["y"])], ""),
    ],
)
def test_a_file_with_which_nothing_can_be_compared_says_so(nodes: list[Any], problem: str, tmp_path: Path) -> None:
    """Also where its noise has a seed: each call of a session draws other numbers."""
    actual = build_file_reference(write_graph(tmp_path / "net.onnx", nodes, {"y": TensorProto.FLOAT}), tmp_path).problem

    assert re.search(problem, actual) if problem else not actual


def test_a_trial_without_a_reference_is_not_checked() -> None:
    """Whatever its outputs, with the reason of the reference."""
    expected = build_module_reference(Broken(float("nan")))

    verdict = reference.judge(expected, list(expected.outputs), 2)

    assert expected.problem == verdict.unchecked
    assert verdict.check is not None
    assert "" == verdict.check.problem


def test_a_reference_reads_back(tmp_path: Path) -> None:
    """With the type of each output; its name is stored elsewhere."""
    expected = build_module_reference(Several())
    expected.write(tmp_path / "a.npz")

    back = reference.read_reference(tmp_path / "a.npz")

    assert expected.errors == back.errors
    for before, after in zip(expected.outputs, back.outputs, strict=True):
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(before, after)


def test_a_file_has_a_reference_in_float64_too(mlp: Workload, tmp_path: Path) -> None:
    """And ONNX Runtime's own error is measured against it."""
    expected = build_file_reference(mlp, tmp_path)

    assert "onnx, float64" == expected.name
    assert np.float64 == expected.outputs[0].dtype
    assert 0 < expected.baseline_rmse < 1e-6


def test_every_output_of_a_file_has_a_reference(tmp_path: Path) -> None:
    """Floats in float64, labels as integers."""
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
    """Its name has the reason."""

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


def build_runs(single: np.ndarray, precise: np.ndarray, alone: np.ndarray) -> Runs:
    return Runs(
        single=[single],
        precise=Attempt(outputs=[precise], name="torch eager, float64"),
        alone=[alone],
        name="torch eager, float32",
    )


def test_a_single_sample_has_its_own_error(tmp_path: Path) -> None:
    """The common error of two samples hides the loss of the first, which is a thousand times smaller."""
    precise = np.array([[1.0, 2.0], [1000.0, 2000.0]])
    single = (precise + np.array([[1e-3, 0], [0, 0]])).astype(np.float32)
    runs = build_runs(single, precise, single[:1])

    expected = reference.split_samples(reference.compare_runs(runs), runs)
    expected.write(tmp_path / "reference.npz")
    back = reference.read_reference(tmp_path / "reference.npz")

    assert expected.row_wise
    assert expected.select_errors(1) == back.select_errors(1) == back.first_errors
    assert expected.select_errors(2) == expected.select_errors(8) == back.errors
    assert back.first_errors[0] > 100 * back.errors[0]


def test_the_larger_error_of_two_orders_of_summation_counts() -> None:
    """The network's loss on the first sample alone counts for that sample, and for both."""
    precise, alone = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 2.0 + 1e-4]])
    runs = build_runs(precise.copy(), precise, alone)

    expected = reference.split_samples(reference.compare_runs(runs), runs)

    assert expected.select_errors(1) == pytest.approx((np.sqrt(1e-8 / 5),))
    assert expected.select_errors(2) == pytest.approx((np.sqrt(1e-8 / 30),))


class Mean(nn.Module):
    """Each sample depends on the others."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(0)


class Rows(nn.Module):
    """Returns what is positive, one row an element."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x > 0).nonzero()


class TimeFirst(nn.Module):
    """Returns the batch in the second dimension."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x).T


@pytest.mark.parametrize(
    ("module", "axes"), [(nn.Linear(8, 2), (0,)), (TimeFirst(), (1,)), (Mean(), None), (Rows(), None)]
)
def test_samples_are_found_in_the_outputs(module: nn.Module, axes: tuple[int | None, ...] | None) -> None:
    """Where a sample depends on the others, each batch size needs a reference of its own."""
    expected = build_module_reference(module)

    assert (axes is not None) == expected.row_wise
    assert (axes or (None,)) == expected.axes


class Running(nn.Module):
    """What it saw last is part of the next answer."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Buffer(torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs = x + self.last
        self.last.copy_(x.mean(0))
        return outputs


class InPlace(nn.Module):
    """Changes its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x -= x.mean()
        return x * 2


class Unstable(nn.Module):
    """Returns as many rows as the last digit decides."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 0.1 * 10 > x).nonzero()


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (Running(), "random or keeps a state"),
        (InPlace(), "changes its input x in place"),
        (Unstable(), "the shapes of its outputs depend on rounding"),
    ],
)
def test_what_is_no_reference_is_said(module: nn.Module, reason: str) -> None:
    """A gap between two runs that is no rounding widens no tolerance."""
    assert reason in build_module_reference(module).problem


def test_a_hook_that_a_copy_leaves_behind_is_rebuilt() -> None:
    """A copy of such a module reads what the original's hook wrote."""

    def build() -> Network:
        features: dict[str, torch.Tensor] = {}
        body = nn.Linear(8, 8)
        body.register_forward_hook(lambda module, inputs, output: features.__setitem__("body", output))

        class Hooked(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.body, self.features = body, features

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                self.body(x)
                return self.features["body"]

        torch.manual_seed(0)
        nn.init.normal_(body.weight)
        nn.init.zeros_(body.bias)
        return Network(inputs=LINE, module=Hooked().eval())

    network = build()
    assert network.module is not None
    network.module(torch.ones(1, 8))

    expected = reference.build_reference(network, 0, threads=1, onnx=lambda rows: Path(), rebuild=build)

    assert "torch eager, float64" == expected.name
    assert expected.row_wise
    assert expected.baseline_rmse < 1e-6


@pytest.mark.parametrize(
    ("outputs", "void"),
    [
        ([np.zeros((2, 3))], "outputs of zeros"),
        ([np.ones((2, 3))], ""),
        ([np.arange(6.0).reshape(2, 3)], ""),
        ([np.array([3, 3])], ""),
        ([np.array([0, 0])], "outputs of zeros and outputs that are 5 % too large"),
        ([np.array(["a", "b"], object)], ""),
    ],
)
def test_a_check_that_accepts_wrong_outputs_is_void(outputs: list[np.ndarray], void: str) -> None:
    """It names them."""
    assert void in find_void(outputs, [])


def test_a_trial_whose_check_is_void_is_not_checked() -> None:
    """A network whose outputs hardly depend on its inputs cannot be told from one with other inputs."""
    constant = np.ones((2, 3))
    expected = Reference(outputs=(constant,), axes=(0,), errors=(0.0,), first_errors=(0.0,), others=(constant + 1e-6,))

    verdict = reference.judge(expected, [constant.astype(np.float32)], 2)

    assert "the outputs for other inputs would pass the check too" in verdict.unchecked


def test_the_precision_of_the_body_widens_the_tolerance() -> None:
    """Not that of its inputs and outputs, and not an option."""

    class Body(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 4).bfloat16()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(x.bfloat16()).float()

    expected = build_module_reference(Body())

    assert "bf16" == expected.precision
    assert 1e-4 < expected.baseline_rmse < 2e-2
