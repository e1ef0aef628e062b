"""What each thing that ngbkit takes care of would have done to the numbers: one of them undone at a time."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ngbkit import options
from ngbkit.device.settings import child_settings
from ngbkit.device.timing import intervals
from ngbkit.hardware import environment, subprocesses
from ngbkit.runs.selfcheck.prepared import prepare
from ngbkit.sweep import validation
from ngbkit.sweep.json_values import to_json_value
from ngbkit.sweep.trials import BASELINE
from ngbkit.workloads import timm

if TYPE_CHECKING:
    import pandas as pd

COMPILERS = (BASELINE, "onnxruntime", "openvino")
NETWORK = "resnet18"
REPEATS = 30
ROUNDS = 6
LEVEL = 0.95
_TIMEOUT_S = 600.0
# Ends with this process, however that ends (PR_SET_PDEATHSIG).
_BUSY = "import ctypes; ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)\nwhile True: pass"

Numbers = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """One thing undone.

    Parameters
    ----------
    name
        In a few words.
    environment
        Variables that differ.
    compilers
        What each compiler is asked for in the place of its plain name.
    words
        Further words for ``ngbkit run``.
    naive
        What to tell `ngbkit.runs.selfcheck.naive`, which then measures in the place of ``ngbkit run``.
    """

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    compilers: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    naive: Mapping[str, Any] | None = None


REFERENCE = Disturbance(name="nothing: as ngbkit measures")
DISTURBANCES: tuple[Disturbance, ...] = (
    Disturbance(name="nothing, once more: the noise"),
    Disturbance(name="idle threads spin (onnxruntime)", compilers={"onnxruntime": 'onnxruntime{"spinning":true}'}),
    # libgomp's own default without any variable set.
    Disturbance(name="OpenMP's default wait policy", environment={"GOMP_SPINCOUNT": "300000"}),
    # What glibc does in a process that has not freed anything large yet.
    Disturbance(
        name="memory goes back to the kernel after each call",
        environment={"MALLOC_MMAP_THRESHOLD_": str(128 << 10), "MALLOC_TRIM_THRESHOLD_": str(128 << 10)},
    ),
    Disturbance(name="one process for all compilers", naive={"compilers": COMPILERS, "training": False}),
    Disturbance(name="sequential blocks", words=("--sequential",)),
    Disturbance(name="eval() is missing", naive={"compilers": (BASELINE,), "training": True}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What one disturbance does to one number.

    Parameters
    ----------
    disturbance, beside
        Which, and beside what: ``"nothing"``, or ``"a busy process"``.
    number
        ``"latency of identity"``, or ``"speed-up of …"``.
    ratio, low, high
        The number with the disturbance over that without, in the same round: the median over rounds and its 95 %
        interval, NaN where there are too few rounds for one.
    spread
        The largest of those ratios over the smallest.
    rounds
        How many there were.
    """

    disturbance: str
    beside: str
    number: str
    ratio: float
    low: float
    high: float
    spread: float
    rounds: int


def measure(
    *,
    rounds: int = ROUNDS,
    repeats: int = REPEATS,
    threads: int | None = None,
    network: str = NETWORK,
    tell: Callable[[str], None] | None = None,
) -> tuple[Effect, ...]:
    """Measure a network with and without each disturbance, in turns, on a quiet machine and beside a busy process.

    Parameters
    ----------
    rounds
        In each, everything is measured once, in shuffled order; an interval takes 6.
    repeats
        Samples a trial.
    threads
        Of every runtime. Default: one a core.
    network
        A timm name.
    tell
        Takes a line of text whenever something begins.

    Raises
    ------
    NgbkitError
        Something could not be measured; the message holds what it printed last.
    """
    count = validation.count("rounds", rounds)
    used = threads or environment.cores_usable()
    spec = {**prepare(timm.model(network), COMPILERS, used), "repeats": repeats}
    order = random.Random(options.get_options()["seed"])
    found: dict[tuple[str, str], list[Numbers]] = defaultdict(list)
    for number in range(count):
        for beside in order.sample(list(_BESIDE), len(_BESIDE)):
            turns = (REFERENCE, *DISTURBANCES)
            for turn in order.sample(turns, len(turns)):
                if tell is not None:
                    tell(f"disturbances, round {number + 1} of {count}, beside {beside}: {turn.name}")
                with _BESIDE[beside]():
                    found[turn.name, beside].append(_take(turn, network, spec))
    return tuple(effect for beside in _BESIDE for turn in DISTURBANCES for effect in _effects(turn, beside, found))


def table(effects: Iterable[Effect]) -> pd.DataFrame:
    """A row a disturbance and what was beside, a column a number: the ratio, and in brackets its 95 % interval."""
    import pandas as pd

    rows: dict[tuple[str, str], dict[str, str]] = {}
    for effect in effects:
        rows.setdefault((effect.beside, effect.disturbance), {})[effect.number] = _written(effect)
    frame = pd.DataFrame.from_records(list(rows.values()))
    for at, name in enumerate(("beside", "disturbance")):
        frame.insert(at, name, [key[at] for key in rows])
    frame.attrs["title"] = "each number with one thing undone, over that as ngbkit measures it"
    return frame.set_index(["beside", "disturbance"])


def to_text(effects: Iterable[Effect]) -> str:
    """`table` for a terminal."""
    from ngbkit.metrics import tables

    return tables.to_text(table(effects))


def to_json(effects: Iterable[Effect]) -> str:
    """The effects as a JSON list; `from_json` reads it."""
    rows = [to_json_value(asdict(effect)) for effect in effects]
    return json.dumps(rows, indent=1)


def from_json(text: str) -> tuple[Effect, ...]:
    """What `to_json` wrote."""
    rows: list[dict[str, Any]] = json.loads(text)
    return tuple(Effect(**{name: _read(value) for name, value in row.items()}) for row in rows)


def _read(value: Any) -> Any:
    return math.nan if value is None else value


def _written(effect: Effect) -> str:
    known = not math.isnan(effect.low)
    return f"{effect.ratio:.2f}" + (f" ({effect.low:.2f} to {effect.high:.2f})" if known else "")


def _take(turn: Disturbance, network: str, spec: Mapping[str, Any]) -> Numbers:
    """The latency of the baseline, in seconds, and the speed-up of each other compiler."""
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    if turn.naive is not None:
        told = json.dumps({**spec, **turn.naive})
        environ = {**settings, **child_settings(spec["threads"]), **turn.environment}
        command = [sys.executable, "-m", "ngbkit.runs.selfcheck.naive", told]
        latency_s = subprocesses.answer(command, environment=environ, timeout_s=_TIMEOUT_S)
        return {
            name: latency_s[BASELINE] if name == BASELINE else latency_s[BASELINE] / latency_s[name]
            for name in latency_s
        }
    labels = {name: turn.compilers.get(name, name) for name in COMPILERS}
    with tempfile.TemporaryDirectory(prefix="ngbkit-") as folder:
        words = ["run", network, "-c", ",".join(labels.values()), "-r", str(spec["repeats"]), "--quiet"]
        words += ["--threads", str(spec["threads"]), "-o", str(Path(folder) / "out.nc"), *turn.words]
        command = [sys.executable, "-m", "ngbkit", *words]
        subprocesses.run(command, environment={**settings, **turn.environment}, timeout_s=_TIMEOUT_S)
        from ngbkit import metrics
        from ngbkit.dataset import storage

        dataset: Any = storage.load(Path(folder) / "out.nc")
        gains = metrics.speedup(dataset, unlike="allow")
        latency = metrics.summary(dataset)["latency_median"]
        return {
            name: (latency if name == BASELINE else gains).sel(compiler=label).item() for name, label in labels.items()
        }


def _effects(turn: Disturbance, beside: str, found: Mapping[tuple[str, str], list[Numbers]]) -> Iterator[Effect]:
    """The numbers with a disturbance over those without, round by round."""
    pairs = list(zip(found[turn.name, beside], found[REFERENCE.name, beside], strict=True))
    for compiler in COMPILERS:
        ratios = np.array([_undone(disturbed, usual, compiler) for disturbed, usual in pairs])
        low, high = intervals.median_interval(np.log(ratios), LEVEL)
        yield Effect(
            disturbance=turn.name,
            beside=beside,
            number="latency of identity" if compiler == BASELINE else f"speed-up of {compiler}",
            ratio=float(np.median(ratios)),
            low=math.exp(low),
            high=math.exp(high),
            spread=float(ratios.max() / ratios.min()),
            rounds=len(ratios),
        )


def _undone(disturbed: Numbers, usual: Numbers, compiler: str) -> float:
    """A number with a disturbance over that without; a compiler that is left alone gains what the baseline loses."""
    own, base = disturbed.get(compiler), disturbed[BASELINE] / usual[BASELINE]
    return own / usual[compiler] if own is not None else base


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _busy_process() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-S", "-c", _BUSY], stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


_BESIDE = {"nothing": _nothing, "a busy process": _busy_process}
