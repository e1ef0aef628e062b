"""The samples in the outputs of a network, what is no reference, and checks that say nothing."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from function_modules import LINE, FunctionModule, build_module_reference
from torch import nn

from ngbkit.device import leftovers, reference
from ngbkit.device.equivalence import find_void
from ngbkit.device.reference import Reference
from ngbkit.device.reference_runs import ReferenceRun, Runs
from ngbkit.workloads.base import Network


def build_runs(single: np.ndarray, precise: np.ndarray, alone: np.ndarray) -> Runs:
    return Runs(
        single=[single],
        precise=ReferenceRun(outputs=[precise], name="torch eager, float64"),
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


@pytest.mark.parametrize(
    ("module", "axes"),
    [
        (nn.Linear(8, 2), (0,)),
        # The batch is the second dimension.
        (FunctionModule(lambda x: torch.relu(x).T), (1,)),
        # Each sample depends on the others.
        (FunctionModule(lambda x: x - x.mean(0)), None),
        # What is positive, one row an element.
        (FunctionModule(lambda x: (x > 0).nonzero()), None),
    ],
)
def test_samples_are_found_in_the_outputs(module: nn.Module, axes: tuple[int | None, ...] | None) -> None:
    """The reference finds the axis of the samples in each output, if samples are independent."""
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


def change_input(x: torch.Tensor) -> torch.Tensor:
    x -= x.mean()
    return x * 2


class Threaded(nn.Module):
    """Computes in a thread that it keeps, or in one of its own, and answers without or with what that returns."""

    def __init__(self, *, keeps: bool, waits: bool) -> None:
        super().__init__()
        self.body, self.pool, self.waits = nn.Linear(8, 8), ThreadPoolExecutor(1) if keeps else None, waits

    def __deepcopy__(self, memo: object) -> Threaded:
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pool = self.pool or ThreadPoolExecutor(1)
        later = pool.submit(lambda: max((self.body(x) for _ in range(8000)), key=id))
        if self.pool is None:
            pool.shutdown(wait=False)
        return later.result() if self.waits else x


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (Running(), "random or keeps a state"),
        (FunctionModule(change_input), "changes its input x in place"),
        # The last digit decides how many rows it returns.
        (
            FunctionModule(lambda x: (x * 0.1 * 10 > x).nonzero()),
            "the shapes of its outputs depend on rounding",
        ),
    ],
)
def test_what_is_no_reference_is_said(module: nn.Module, reason: str) -> None:
    """A gap between two runs that is no rounding widens no tolerance."""
    assert reason in build_module_reference(module).problem


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("waits", [False, True])
def test_a_call_that_leaves_work_to_a_thread_is_no_reference(keeps: bool, waits: bool) -> None:
    """Its time is not that of what it computes, whatever it returns."""
    problem = build_module_reference(Threaded(keeps=keeps, waits=waits)).problem

    assert waits != ("threads that they started still run" in problem)


@pytest.mark.parametrize(
    ("milliseconds", "is_left"),
    [([8, 8, 8, 0, 0], True), ([0, 8, 8, 0, 0], True), ([20] * 200, False), ([0, 0], False)],
)
def test_work_that_a_busy_machine_delays_is_seen(
    milliseconds: list[int], is_left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that gets a part of each pause has left work once it ends; one that never ends has left none."""
    totals = iter(itertools.accumulate([0, 0, *milliseconds]))
    monkeypatch.setattr(leftovers, "_list_seconds", lambda: {1: next(totals) / 1e3})

    assert is_left == leftovers.ThreadWatch().find_work()


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
    """A check that accepts wrong outputs is void, and its reason has them."""
    assert void in find_void(outputs, [])


def test_a_trial_whose_check_is_void_is_not_checked() -> None:
    """A network whose outputs hardly depend on its inputs cannot be told from one with other inputs."""
    constant = np.ones((2, 3))
    expected = Reference(outputs=(constant,), axes=(0,), errors=(0.0,), first_errors=(0.0,), others=(constant + 1e-6,))

    verdict = reference.judge(expected, [constant.astype(np.float32)], 2)

    assert "the outputs for other inputs would pass the check too" in verdict.unchecked


def test_the_precision_of_the_body_widens_the_tolerance() -> None:
    """The tolerance follows the precision of the network's body, not of its inputs."""

    class Body(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 4).bfloat16()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(x.bfloat16()).float()

    expected = build_module_reference(Body())

    assert "bf16" == expected.precision
    assert 1e-4 < expected.baseline_rmse < 2e-2
