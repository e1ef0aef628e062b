"""Measures the numbers that a benchmark without one of ngbkit's precautions would report, one at a time."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit import options
from ngbkit.dataset import storage
from ngbkit.device.timing import intervals
from ngbkit.device.timing.normal import LEVEL
from ngbkit.hardware import subprocesses
from ngbkit.metrics.scaling import SPEEDUP
from ngbkit.sweep.column import BASELINE
from ngbkit.sweep.memory import SYSTEM
from ngbkit.workloads.subprocesses import build_arguments, build_python_path

COMPILERS = (BASELINE, "onnxruntime", "openvino")
NETWORK = "resnet18"
# Fewer rounds have no interval.
ROUNDS, REPEATS = 6, 30
_TIMEOUT_S = 600.0
# It ends when this process ends for any reason (PR_SET_PDEATHSIG).
_BUSY = "import ctypes; ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)\nwhile True: pass"

# The latency of the baseline in seconds, and the speed-up of each other compiler.
Numbers = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """A precaution left out, by other environment variables, compilers or arguments of ``ngbkit run``."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    compilers: Mapping[str, str] = field(default_factory=dict)  # their replacements, by name
    arguments: tuple[str, ...] = ()
    measure: Callable[[], Numbers] | None = None  # measures in place of ``ngbkit run``


REFERENCE = Disturbance(name="nothing: as ngbkit measures")
DISTURBANCES: tuple[Disturbance, ...] = (
    Disturbance(name="nothing, once more: the noise"),
    # The default of libgomp without any variable: idle threads spin, where another process needs their cores.
    Disturbance(name="OpenMP's default wait policy", environment={"GOMP_SPINCOUNT": "300000"}),
    Disturbance(name="memory goes back to the kernel after each call", arguments=("--memory", SYSTEM)),
    Disturbance(name="idle threads spin (onnxruntime)", compilers={"onnxruntime": 'onnxruntime{"spinning":true}'}),
)
"""Settings of ngbkit, each left out."""


def measure(others: Sequence[Disturbance], rounds: int, repeats: int, threads: int) -> list[dict[str, Any]]:
    """Measure a network with and without each disturbance, on a quiet machine and beside a busy process.

    Each round measures everything once with `repeats` samples a trial, in shuffled order; an interval needs 6 rounds. A
    row is a ``disturbance``, the load ``beside`` it and a ``number``: the median ``ratio`` of that with the disturbance
    to that without in the same round, its 95 % interval ``low`` to ``high``, and ``spread``, the largest over the
    smallest.
    """
    disturbances = (*DISTURBANCES, *others)
    arguments = ("-r", str(repeats), "--threads", str(threads), "--quiet")
    order = random.Random(options.get_options()["seed"])
    numbers: dict[tuple[str, str], list[Numbers]] = defaultdict(list)
    for index in range(rounds):
        for beside in order.sample(list(_BESIDE), len(_BESIDE)):
            for disturbance in order.sample((REFERENCE, *disturbances), 1 + len(disturbances)):
                print(f"round {index + 1} of {rounds}, beside {beside}: {disturbance.name}", file=sys.stderr)
                with _BESIDE[beside]():
                    numbers[disturbance.name, beside].append(_measure(disturbance, arguments))
    return [
        row
        for beside in _BESIDE
        for disturbance in disturbances
        for row in _compare(disturbance, beside, numbers[disturbance.name, beside], numbers[REFERENCE.name, beside])
    ]


def _measure(disturbance: Disturbance, arguments: Sequence[str]) -> Numbers:
    if disturbance.measure is not None:
        return disturbance.measure()
    labels = {name: disturbance.compilers.get(name, name) for name in COMPILERS}
    variables = {**os.environ, "PYTHONPATH": build_python_path(), **disturbance.environment}
    with tempfile.TemporaryDirectory(prefix="ngbkit-") as folder:
        target = Path(folder) / "out.nc"
        columns = ",".join(labels.values())
        command = build_arguments("ngbkit", "run", NETWORK, "-c", columns, "-o", str(target), *arguments)
        command += disturbance.arguments
        subprocesses.run([sys.executable, *command], environment=variables, timeout_s=_TIMEOUT_S)
        dataset: Any = storage.load(target)
        speedup = SPEEDUP(dataset, unlike="allow")
        latency = dataset["latency"].median("repeat")
        return {
            name: (latency if name == BASELINE else speedup).sel(compiler=label).item()
            for name, label in labels.items()
        }


def _compare(
    disturbance: Disturbance, beside: str, contended: Sequence[Numbers], reference: Sequence[Numbers]
) -> Iterator[dict[str, Any]]:
    """Compare the numbers with a disturbance to those without, round by round."""
    for compiler in COMPILERS:
        # A compiler that is not contended gains what the baseline loses.
        names = [compiler if compiler in numbers else BASELINE for numbers in contended]
        pairs = zip(names, contended, reference, strict=True)
        ratios = np.array([numbers[name] / expected[name] for name, numbers, expected in pairs])
        low, high = np.exp(intervals.compute_median_interval(np.log(ratios), LEVEL))
        yield {
            "disturbance": disturbance.name,
            "beside": beside,
            "number": "latency of identity" if compiler == BASELINE else f"speed-up of {compiler}",
            "ratio": float(np.median(ratios)),
            "low": float(low),
            "high": float(high),
            "spread": float(ratios.max() / ratios.min()),
            "rounds": len(ratios),
        }


@contextmanager
def _busy_process() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-S", "-c", _BUSY], stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


_BESIDE: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    "nothing": nullcontext,
    "a busy process": _busy_process,
}
