"""Modules as people write them: what they return, from dataclasses to complex numbers, and rows that data decide."""

from __future__ import annotations

from pathlib import Path

import pytest
from field.case import OK, Case, Outcome, expect_failure, expect_unchecked
from field.measuring import Results, find_faults, measure
from field.modules import COMPILERS, describe_module

DATACLASS = """
from dataclasses import dataclass

@dataclass
class Answer:
    logits: torch.Tensor
    hidden: torch.Tensor

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 32), nn.Linear(32, 4)
    def forward(self, x):
        h = torch.relu(self.a(x))
        return Answer(self.b(h), h)

model = Net()
input_shape = (16,)
"""
MODEL_OUTPUT = """
from collections import OrderedDict
from dataclasses import dataclass, fields

@dataclass
class Answer(OrderedDict):
    logits: torch.Tensor = None
    hidden: torch.Tensor = None
    def __post_init__(self):
        for field in fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 32), nn.Linear(32, 4)
    def forward(self, x):
        h = torch.relu(self.a(x))
        return Answer(logits=self.b(h), hidden=h)

model = Net()
input_shape = (16,)
"""
NAMED_TUPLE = """
from typing import NamedTuple, Optional

class Answer(NamedTuple):
    logits: torch.Tensor
    loss: Optional[torch.Tensor]
    steps: int

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(16, 4)
    def forward(self, x, labels=None):
        return Answer(self.a(x), None, 3)

model = Net()
input_shape = (16,)
"""
NONE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(16, 4)
    def forward(self, x, labels=None):
        return {"logits": self.a(x), "loss": None}

model = Net()
input_shape = (16,)
"""
FOURIER = """
class FourierUnit(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, 16, 9, dtype=torch.cfloat) * 0.2)
    def forward(self, x):
        f = torch.fft.rfft2(x, norm="ortho") * self.weight
        return torch.fft.irfft2(f, s=x.shape[-2:], norm="ortho")

model = FourierUnit()
input_shape = (8, 16, 16)
"""
SPECTRUM = """
class Spectrum(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(32, 32)
    def forward(self, x):
        return torch.fft.rfft(self.fc(x))

model = Spectrum()
input_shape = (32,)
"""
COMPLEX_INPUT = """
class Mix(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(16, 16, dtype=torch.cfloat) * 0.2)
    def forward(self, z):
        return (z @ self.w).abs()

model = Mix()
inputs = torch.randn(2, 16, dtype=torch.cfloat)
"""
DETECTOR = """
import torchvision

class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 5)
    def forward(self, x):
        y = self.fc(x)
        corner = y[0, :, :2]
        boxes = torch.cat([corner, corner + y[0, :, 2:4].abs() + 0.1], 1)
        keep = torchvision.ops.nms(boxes, y[0, :, 4], 0.5)
        return boxes[keep], keep

model = Head()
input_shape = (30, 8)
"""
UPSCALED = """
class Up(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.lat = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(3, 8, 1)
    def forward(self, x):
        d = self.down(x)
        up = F.interpolate(d, size=x.shape[-2:], mode="bicubic", align_corners=False, antialias=True)
        return up + self.lat(x), F.grid_sample(d, torch.zeros(x.shape[0], 4, 4, 2), align_corners=False)

model = Up()
input_shape = (3, 33, 47)
"""
DROPOUT = """
class MonteCarlo(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, 4)
    def forward(self, x):
        return self.fc(F.dropout(x, 0.5))

model = MonteCarlo()
input_shape = (16,)
"""
MIXTURE = """
class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(16, 4)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
    def forward(self, x):
        w, idx = self.gate(x).softmax(-1).topk(2, -1)
        y = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            rows, slot = torch.where(idx == e)
            y[rows] += w[rows, slot, None] * expert(x[rows])
        return y

model = Mixture()
input_shape = (16,)
"""
ROUNDING = """
class Threshold(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 64)
    def forward(self, x):
        y = self.fc(x)
        return y, (y * 0.1 * 10 > y).nonzero()

model = Threshold()
input_shape = (8,)
"""
MEAN = """
class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)
    def forward(self, x):
        return self.fc(x).square().mean()

model = Loss()
input_shape = (8,)
"""
NOTHING = """
class Silent(nn.Module):
    def forward(self, x):
        return None

model = Silent()
input_shape = (8,)
"""
WITH_OPENVINO = (*COMPILERS, "openvino")
EXPORTED = Outcome(status="ok|unsupported")
# A trace has the branches of the inputs that it was made with, and timed calls have others.
TRACED = Outcome(status="ok|unsupported|failed|not-equivalent")
# Nothing shows which dimension is the batch.
WHOLE = Outcome(status="unsupported", reason="no output follows its size")


def _exported(*compilers: str) -> dict[str | int | tuple[str, int], Outcome]:
    """Expect that exporters of these compilers may refuse the network."""
    return dict.fromkeys(compilers, EXPORTED)


CASES = tuple(
    describe_module(name, text, outcome=outcome, outcomes=outcomes, compilers=compilers)
    for name, text, compilers, outcome, outcomes in (
        ("50-dataclass-output", DATACLASS, COMPILERS, OK, _exported("torchscript", "onnxruntime")),
        ("51-modeloutput", MODEL_OUTPUT, COMPILERS, OK, _exported("torchscript", "onnxruntime")),
        ("51b-namedtuple-and-none", NAMED_TUPLE, COMPILERS, OK, {}),
        ("51c-none-only", NONE, COMPILERS, OK, {}),
        ("57-fourier", FOURIER, WITH_OPENVINO, OK, _exported("openvino")),
        ("57b-complex-output", SPECTRUM, WITH_OPENVINO, OK, {"openvino": Outcome(status="unsupported|not-equivalent")}),
        ("57c-complex-input", COMPLEX_INPUT, COMPILERS, expect_failure("complex"), {}),
        ("65-nms-head", DETECTOR, COMPILERS, OK, {2: WHOLE, **_exported("torchscript")}),
        ("65b-interpolate-like", UPSCALED, WITH_OPENVINO, OK, {"openvino": Outcome(status="not-equivalent")}),
        (
            "66-dropout-always-on",
            DROPOUT,
            COMPILERS,
            Outcome(status="failed|unsupported|not-checked", reason="random"),
            {},
        ),
        ("81-moe-topk", MIXTURE, COMPILERS, OK, {"torchscript": TRACED, **_exported("onnxruntime")}),
        (
            "86-count-depends-on-rounding",
            ROUNDING,
            COMPILERS,
            expect_unchecked("depend on rounding"),
            {"onnxruntime": Outcome(status="not-checked|unsupported")},
        ),
        ("27b-mean-over-batch", MEAN, COMPILERS, OK, {2: WHOLE}),
        ("51d-nothing", NOTHING, COMPILERS, expect_failure("tensor"), {}),
    )
)


@pytest.fixture(scope="module")
def results(state_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Results]:
    return measure(CASES, tmp_path_factory.mktemp("returns"))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_tensors_are_taken_from_any_output(case: Case, results: dict[str, Results]) -> None:
    """Each compiler is measured and checked, or the reason is true."""
    assert [] == find_faults(case, results[case.name])
