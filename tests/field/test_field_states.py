"""Modules as people write them: hooks, caches, reparametrised weights, scripts, and files beside them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from field.case import Case, Outcome
from field.measuring import Results, find_faults, measure
from field.modules import COMPILERS, describe_module
from field.writing import Build

from ngbkit.workloads.base import Workload
from ngbkit.workloads.module import from_module

WEIGHT_NORM = """
import warnings
warnings.simplefilter("ignore")
norm = nn.utils.weight_norm
layers = norm(nn.Conv1d(8, 16, 3, padding=1)), nn.LeakyReLU(0.1), norm(nn.ConvTranspose1d(16, 8, 4, 2, 1))
model = nn.Sequential(*layers)
input_shape = (8, 50)
"""
RAN_ONCE = """
import warnings
warnings.simplefilter("ignore")
model = nn.Sequential(nn.utils.weight_norm(nn.Conv1d(8, 16, 3, padding=1)), nn.Tanh())
model(torch.randn(1, 8, 50))
input_shape = (8, 50)
"""
NEW_NORMS = """
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
layers = weight_norm(nn.Conv1d(8, 16, 3, padding=1)), nn.LeakyReLU(0.1), spectral_norm(nn.Conv1d(16, 8, 3, padding=1))
model = nn.Sequential(*layers)
input_shape = (8, 50)
"""
BUFFER = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(1, 2))
        self.fc = nn.Linear(8, 4)
    def forward(self, x):
        y = self.fc(x)
        self.cache[0, 1] = y.sum()
        return y

model = Net()
input_shape = (8,)
"""
RUNNING_CACHE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(8))
        self.fc = nn.Linear(16, 4)
    def forward(self, x):
        y = self.fc(torch.cat([x, self.last.expand(x.shape[0], 8)], 1))
        self.last.copy_(x.mean(0))
        return y

model = Net()
input_shape = (8,)
"""
EARLY_EXIT = """
class EarlyExit(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.h1, self.h2 = nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 5), nn.Linear(32, 5)
    def forward(self, x):
        h = torch.relu(self.a(x))
        y = self.h1(h)
        if y.softmax(-1).max() > 0.9:
            return y
        return self.h2(torch.relu(self.b(h)))

model = EarlyExit()
input_shape = (16,)
"""
CONDITION = """
class EarlyExit(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.h = nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 5)
    def forward(self, x):
        h = torch.relu(self.a(x))
        h = torch.cond(h.mean() > 0.5, lambda t: t + 0.0, lambda t: torch.relu(self.b(t)), (h,))
        return self.h(h)

model = EarlyExit()
input_shape = (16,)
"""
SCRIPTED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)
    def forward(self, x):
        y = self.fc(x)
        if bool(y.sum() > 0):
            y = y * 2
        return y

import warnings
warnings.simplefilter("ignore")
model = torch.jit.script(Net().eval())
input_shape = (8,)
"""
TRACED = """
import warnings
warnings.simplefilter("ignore")
model = torch.jit.trace(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval(), torch.randn(1, 3, 16, 16))
input_shape = (3, 16, 16)
"""
COMPILED = """
model = torch.compile(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)))
input_shape = (16,)
"""
LAZY = """
model = nn.Sequential(nn.LazyConv2d(8, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5))
input_shape = (3, 12, 12)
"""
OWN_FUNCTION = """
class RoundThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x * 8) / 8
    @staticmethod
    def backward(ctx, g):
        return g

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, 8)
    def forward(self, x):
        return RoundThrough.apply(self.fc(x))

model = Net()
input_shape = (16,)
"""
PERMUTED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.randn(20, 10, 20).permute(2, 0, 1)
    def forward(self, x):
        y = (x + self.table).permute(0, 2, 1, 3)
        return y.reshape(x.shape[0], -1), y.sum(1)

model = Net()
input_shape = (20, 20, 10)
"""
CHANNELS_LAST = """
layers = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3)
model = nn.Sequential(*layers).to(memory_format=torch.channels_last)
inputs = torch.randn(2, 3, 32, 32).contiguous(memory_format=torch.channels_last)
"""
DATA_PARALLEL = """
model = nn.DataParallel(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)))
input_shape = (16,)
"""
SIBLING = """
from sibling_net import Net
model = Net()
input_shape = (8,)
"""
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)
    def forward(self, x):
        return self.fc(x).relu()
"""
MAIN_GUARD = """
import argparse

class Net(nn.Module):
    def __init__(self, width: int = 32, activation: str = "relu"):
        super().__init__()
        self.fc = nn.Linear(8, width)
        self.act = activation
    def forward(self, x):
        return getattr(torch, self.act)(self.fc(x))

model = Net
input_shape = (8,)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.parse_args()
"""
HOOK_AND_COUNTER = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
        self.head = nn.Linear(16, 4)
        self.calls, self.features = 0, {}
        self.body.register_forward_hook(lambda m, i, o: self.features.__setitem__("body", o.detach()))
    def forward(self, x):
        self.calls += 1
        y = self.head(self.body(x))
        return y, self.features["body"]

model = Net()
input_shape = (8,)
"""
FEATURE_HOOK = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
        self.head = nn.Linear(16, 4)
        self.body.register_forward_hook(self.save)
    def save(self, module, inputs, output):
        self.features = output
    def forward(self, x):
        self.body(x)
        return self.head(self.features)

model = Net()
input_shape = (8,)
"""
EXPORTED = Outcome(status="ok|unsupported")
# A trace has the branches of the inputs that it was made with, and timed calls have others.
BRANCHED = Outcome(status="ok|unsupported|failed|not-equivalent")
TRACE = Outcome(status="failed|unsupported", reason="torch.jit.trace")
# A check of a network that keeps a state is made on its first call, or said not to be made.
STATEFUL = Outcome(status="ok|not-checked|unsupported")


def _import(text: str) -> dict[str, Any]:
    """Execute a text, as a cell of a notebook is."""
    namespace: dict[str, Any] = {"__name__": "notebook"}
    imports = "import torch\nfrom torch import nn\n"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(imports + text, namespace)
    return namespace


def _build_from_module(name: str, text: str, *shape: int) -> Build:
    """Return a function that describes the model of a text from its object."""

    def build(folder: Path) -> Workload:
        import torch

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, of attributes that a hook assigns
            return from_module(name, _import(text)["model"], torch.randn(2, *shape))

    return build


CASES = (
    *(
        describe_module(name, text, outcomes=outcomes)
        for name, text, outcomes in (
            ("52-weight-norm-old", WEIGHT_NORM, {}),
            ("52b-weight-norm-ran-once", RAN_ONCE, {}),
            ("53-weight-norm-new", NEW_NORMS, {}),
            ("55-buffer-written", BUFFER, {}),
            ("55b-running-cache", RUNNING_CACHE, dict.fromkeys(COMPILERS, STATEFUL)),
            ("56-early-exit", EARLY_EXIT, dict.fromkeys(("torchscript", "onnxruntime"), EXPORTED)),
            ("56b-condition", CONDITION, {"torchscript": TRACE}),
            ("58-scripted", SCRIPTED, {"onnxruntime": BRANCHED}),
            ("58b-traced", TRACED, {"onnxruntime": EXPORTED}),
            ("59-already-compiled", COMPILED, {"torchscript": TRACE}),
            ("68-lazy", LAZY, {}),
            ("72-own-function", OWN_FUNCTION, {}),
            ("73-permuted", PERMUTED, {}),
            ("75-channels-last", CHANNELS_LAST, {}),
            ("77-data-parallel", DATA_PARALLEL, {}),
            ("79d-main-guard", MAIN_GUARD, {}),
            ("82-hooks-and-counter", HOOK_AND_COUNTER, {}),
            ("82b-feature-hook", FEATURE_HOOK, {}),
        )
    ),
    Case(
        name="from-old-norm",
        build=_build_from_module("from-old-norm", WEIGHT_NORM, 8, 50),
        compilers=COMPILERS,
    ),
    Case(
        name="from-feature-hook",
        build=_build_from_module("from-feature-hook", FEATURE_HOOK, 8),
        compilers=COMPILERS,
    ),
    Case(
        name="from-traced",
        build=_build_from_module("from-traced", TRACED, 3, 16, 16),
        compilers=COMPILERS,
    ),
)


@pytest.fixture(scope="module")
def results(state_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Results]:
    return measure(CASES, tmp_path_factory.mktemp("states"))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_states_do_not_void_the_check(case: Case, results: dict[str, Results]) -> None:
    """Each compiler is measured and checked, or says why not."""
    assert [] == find_faults(case, results[case.name])
