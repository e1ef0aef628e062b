"""No check is void: whatever the network, wrong outputs are rejected, or the trial says that they are not checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from function_modules import FunctionModule
from torch import nn

from ngbkit.device import equivalence, reference
from ngbkit.device.equivalence import Tolerance
from ngbkit.device.reference import Reference
from ngbkit.testing.alterations import build_reference, find_accepted
from ngbkit.testing.networks import NETWORKS
from ngbkit.workloads import export, feeds
from ngbkit.workloads.base import BATCH, Network, TensorSpec
from ngbkit.workloads.randomise import seed_generators

SIZES = (1, 2, 3)


class Running(nn.Module):
    """A layer whose next answer depends on its last inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(8))
        self.fc = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.fc(torch.cat([x, self.last.expand(len(x), 8)], 1))
        self.last.copy_(x.mean(0))
        return y


class Hooked(nn.Module):
    """A head on features that a hook saves in the module that it was built for."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(8, 16), nn.Linear(16, 4)
        self.body.register_forward_hook(lambda module, inputs, output: self.__dict__.update(features=output))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.body(x)
        return self.head(self.features)


class Mean(nn.Module):
    """One number for the whole batch."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x).square().mean()


class Labels(nn.Module):
    """Integers for each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 6 * 20)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x).reshape(-1, 20, 6).argmax(-1)


class Cast(nn.Module):
    """A body in another precision, between inputs and outputs in single precision."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4)).to(dtype)
        self.dtype = dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x.to(self.dtype)).float()


class Constant(nn.Module):
    """Outputs that do not depend on the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight.expand(len(x), 4) + 0 * x[:, :4]


MODULES: dict[str, Callable[[], nn.Module]] = {
    "a running state": Running,
    "a hook": Hooked,
    "a mean over the batch": Mean,
    "labels": Labels,
    "zeros": lambda: FunctionModule(lambda x: torch.relu(-x.abs())),
    "noise": lambda: FunctionModule(lambda x: torch.dropout(x, 0.5, train=True)),
    "float16": lambda: Cast(torch.float16),
    "bfloat16": lambda: Cast(torch.bfloat16),
    "a constant": Constant,
    "a faint signal": lambda: FunctionModule(lambda x: 1 + 1e-6 * x),
}
CHECKED = {"a hook", "a mean over the batch", "labels", "float16", "bfloat16"}


def build_network(name: str) -> Network:
    """Build a module of this file, seeded, or a network of the conformance suite."""
    if name in NETWORKS:
        return NETWORKS[name]()
    with seed_generators(0):
        module = MODULES[name]().eval()
    return Network(inputs=[TensorSpec(name="input", shape=(BATCH, 8))], module=module)


def run(name: str, batch_size: int, seed: int) -> list[np.ndarray]:
    """Run a new module in its own precision on inputs of a seed."""
    network = build_network(name)
    tensors = [torch.from_numpy(array) for array in feeds.draw(network.inputs, {}, batch_size, seed)]
    with torch.no_grad():
        return [export.to_array(tensor) for tensor in export.flatten(network.module(*tensors))]


def find_faults(name: str, batch_size: int, folder: Path) -> list[str]:
    """List what is wrong with the check of a network: what it accepts, or right outputs that it rejects."""
    expected = build_reference(partial(build_network, name), batch_size, folder)
    outputs = run(name, batch_size, seed=0)
    verdict = reference.judge(expected, outputs, batch_size)
    faults = [f"accepts {fault}" for fault in find_accepted(expected, outputs, run(name, batch_size, 1), batch_size)]
    if verdict.check and verdict.check.problem:
        faults.append(f"rejects right outputs: {verdict.check.problem}")
    if verdict.unchecked and (name in CHECKED or name in NETWORKS):
        faults.append(f"is not made: {verdict.unchecked}")
    return faults


@pytest.mark.parametrize("batch_size", SIZES)
@pytest.mark.parametrize("name", [*NETWORKS, *MODULES])
def test_wrong_outputs_never_pass_silently(name: str, batch_size: int, tmp_path: Path) -> None:
    """Zeros, 5 %, another order and other inputs are rejected or not checked; right outputs are never rejected."""
    assert [] == find_faults(name, batch_size, tmp_path)


def inflate_baseline(patch: pytest.MonkeyPatch) -> None:
    """Count half of each output as the rounding of the network itself."""
    read = reference.read_reference

    def read_inflated(path: str | Path) -> Reference:
        expected = read(path)
        errors = (0.5,) * len(expected.outputs)
        return replace(expected, errors=errors, first_errors=errors)

    patch.setattr(reference, "read_reference", read_inflated)


def widen_tolerance(patch: pytest.MonkeyPatch) -> None:
    """Allow an error as large as the outputs."""
    wide = Tolerance(factor=2.0, absolute=1.0)
    patch.setattr(equivalence, "TOLERANCES", dict.fromkeys(equivalence.TOLERANCES, wide))
    patch.setattr(equivalence, "_MOST", 1.0)


def skip_self_test(patch: pytest.MonkeyPatch) -> None:
    """Believe a check that would accept wrong outputs."""
    patch.setattr(equivalence, "find_void", lambda *arguments, **options: "")


@pytest.mark.parametrize("weaken", [inflate_baseline, widen_tolerance, skip_self_test])
def test_a_weakened_check_is_noticed(
    weaken: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above fails for some network once a part of the check is weaker."""
    weaken(monkeypatch)
    faults = [fault for name in (*NETWORKS, *MODULES) for fault in find_faults(name, 2, tmp_path)]

    assert faults
