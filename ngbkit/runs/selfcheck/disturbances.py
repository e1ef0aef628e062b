"""Measures the numbers that a benchmark without one of ngbkit's precautions would report, one at a time."""

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
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ngbkit import options, validation
from ngbkit.device.isolation.settings import build_child_settings
from ngbkit.device.timing import intervals
from ngbkit.hardware import environment, subprocesses
from ngbkit.runs.selfcheck.prepared import prepare
from ngbkit.sweep.json_values import to_json_value
from ngbkit.sweep.trials import BASELINE
from ngbkit.workloads import timm
from ngbkit.workloads.subprocesses import build_arguments, build_python_path

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

COMPILERS = (BASELINE, "onnxruntime", "openvino")
NETWORK = "resnet18"
REPEATS = 30
ROUNDS = 6
LEVEL = 0.95
_TIMEOUT_S = 600.0
# Of a figure, in pixels; and the colours of both loads.
_WIDTH, _STEP = 230, 40
_COLOURS = ("#0072B2", "#D55E00")
# It ends when this process ends for any reason (PR_SET_PDEATHSIG).
_BUSY = "import ctypes; ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)\nwhile True: pass"

# The latency of the baseline in seconds, and the speed-up of each other compiler.
Numbers = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """A precaution left out, by other environment variables, compilers or arguments of ``ngbkit run``."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    # Replacements of compilers, by the name of the compiler.
    compilers: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    # Additions to the spec of `ngbkit.runs.selfcheck.naive`, which then measures instead of ``ngbkit run``.
    naive: Mapping[str, Any] | None = None


REFERENCE = Disturbance(name="nothing: as ngbkit measures")
DISTURBANCES: tuple[Disturbance, ...] = (
    Disturbance(name="nothing, once more: the noise"),
    Disturbance(name="idle threads spin (onnxruntime)", compilers={"onnxruntime": 'onnxruntime{"spinning":true}'}),
    # The default of libgomp without any variable.
    Disturbance(name="OpenMP's default wait policy", environment={"GOMP_SPINCOUNT": "300000"}),
    # The behaviour of glibc in a process that has not freed a large block yet.
    Disturbance(
        name="memory goes back to the kernel after each call",
        environment={"MALLOC_MMAP_THRESHOLD_": str(128 << 10), "MALLOC_TRIM_THRESHOLD_": str(128 << 10)},
    ),
    Disturbance(name="one process for all compilers", naive={"compilers": COMPILERS, "training": False}),
    Disturbance(name="sequential blocks", arguments=("--sequential",)),
    Disturbance(name="eval() is missing", naive={"compilers": (BASELINE,), "training": True}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The effect of one disturbance on one number.

    Parameters
    ----------
    disturbance, beside
        The disturbance, and the load beside the measurement: ``"nothing"``, or ``"a busy process"``.
    number
        ``"latency of identity"``, or ``"speed-up of …"``.
    ratio, low, high
        The number with the disturbance over that without, in the same round: the median over rounds and its 95 %
        interval, NaN where there are too few rounds.
    spread
        The largest of those ratios over the smallest.
    rounds
        Number of rounds.
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
    """Measure a timm network with and without each disturbance, on a quiet machine and beside a busy process.

    Each round measures everything once with `repeats` samples a trial, in shuffled order; an interval needs 6 rounds.
    """
    rounds = validation.check("rounds", validation.PositiveCount, rounds)
    threads = threads or environment.count_usable_cores()
    spec = {**prepare(timm.model(network), COMPILERS, threads), "repeats": repeats}
    order = random.Random(options.get_options()["seed"])
    numbers: dict[tuple[str, str], list[Numbers]] = defaultdict(list)
    for index in range(rounds):
        for beside in order.sample(list(_BESIDE), len(_BESIDE)):
            for disturbance in order.sample((REFERENCE, *DISTURBANCES), 1 + len(DISTURBANCES)):
                if tell is not None:
                    tell(f"disturbances, round {index + 1} of {rounds}, beside {beside}: {disturbance.name}")
                with _BESIDE[beside]():
                    numbers[disturbance.name, beside].append(_measure(disturbance, network, spec))
    return tuple(
        effect
        for beside in _BESIDE
        for disturbance in DISTURBANCES
        for effect in _compare(disturbance, beside, numbers)
    )


def table(effects: Iterable[Effect]) -> pd.DataFrame:
    """Tabulate effects: a row a disturbance, a column a number, with the ratio and its 95 % interval in brackets."""
    import pandas as pd

    rows: dict[tuple[str, str], dict[str, str]] = {}
    for effect in effects:
        interval = "" if math.isnan(effect.low) else f" ({effect.low:.2f} to {effect.high:.2f})"
        rows.setdefault((effect.beside, effect.disturbance), {})[effect.number] = f"{effect.ratio:.2f}{interval}"
    frame = pd.DataFrame(list(rows.values()), pd.MultiIndex.from_tuples(rows, names=["beside", "disturbance"]))
    frame.attrs["title"] = "each number with one disturbance, over the number as ngbkit measures it"
    return frame


def draw(effects: Iterable[Effect]) -> alt.FacetChart:
    """Draw effects: a row a disturbance, a panel a number, with 95 % intervals where there are enough rounds."""
    import altair as alt
    import pandas as pd

    from ngbkit.figures import lines, marks

    frame = pd.DataFrame([asdict(effect) for effect in effects])
    scale = alt.Scale(type="log", nice=False, padding=12)
    encodings = {
        "y": alt.Y(
            "disturbance:N", sort=None, title=None, axis=marks.build_name_axis(frame["disturbance"], 320, ticks=True)
        ),
        "yOffset": alt.YOffset("beside:N", sort=None),
        "color": alt.Color(
            "beside:N",
            sort=None,
            title="beside",
            scale=alt.Scale(range=list(_COLOURS)),
            legend=alt.Legend(orient="top", symbolType="circle"),
        ),
    }
    ratio = alt.X("ratio:Q", scale=scale, title="with the disturbance, over without it", axis=alt.Axis(tickCount=5))
    tooltip = ["disturbance:N", "beside:N", "number:N", "ratio:Q", "low:Q", "high:Q", "rounds:Q"]
    layers = alt.layer(
        alt.Chart().mark_rule(color="#BBBBBB").encode(x=alt.datum(1, scale=scale)),
        alt.Chart().mark_rule().encode(x=alt.X("low:Q", scale=scale), x2="high:Q", **encodings),
        alt.Chart().mark_point(filled=True, size=60).encode(x=ratio, tooltip=tooltip, **encodings),
        data=marks.inline(frame),
        width=_WIDTH,
        height=alt.Step(_STEP, **{"for": "position"}),
    )
    chart: alt.FacetChart = layers.facet(facet=alt.Facet("number:N", title=None, header=lines.HEADER), columns=3)
    title = "The effect of each precaution"
    subtitle = ["each number without one precaution, over the number as ngbkit measures it"]
    return lines.finish(chart, alt.TitleParams(title, subtitle=subtitle, fontSize=16, offset=16))


def to_text(effects: Iterable[Effect]) -> str:
    """Format `table` for a terminal."""
    from ngbkit.metrics import tables

    return tables.to_text(table(effects))


def to_json(effects: Iterable[Effect]) -> str:
    """Format effects as a JSON list, which `from_json` parses."""
    return json.dumps([to_json_value(asdict(effect)) for effect in effects], indent=1)


def from_json(text: str) -> tuple[Effect, ...]:
    """Parse effects that `to_json` formatted."""
    rows: list[dict[str, Any]] = json.loads(text)
    return tuple(Effect(**{**row, **{name: math.nan for name, value in row.items() if value is None}}) for row in rows)


def _measure(disturbance: Disturbance, network: str, spec: Mapping[str, Any]) -> Numbers:
    variables = {**os.environ, "PYTHONPATH": build_python_path()}
    if disturbance.naive is not None:
        variables |= {**build_child_settings(spec["threads"]), **disturbance.environment}
        text = json.dumps({**spec, **disturbance.naive})
        command = [sys.executable, *build_arguments("ngbkit.runs.selfcheck.naive", text)]
        latency_s = subprocesses.run_json(command, environment=variables, timeout_s=_TIMEOUT_S)
        baseline_s = latency_s[BASELINE]
        return {name: seconds if name == BASELINE else baseline_s / seconds for name, seconds in latency_s.items()}
    from ngbkit import metrics
    from ngbkit.dataset import storage

    labels = {name: disturbance.compilers.get(name, name) for name in COMPILERS}
    with tempfile.TemporaryDirectory(prefix="ngbkit-") as folder:
        target = Path(folder) / "out.nc"
        columns = ",".join(labels.values())
        command = [sys.executable, *build_arguments("ngbkit", "run", network, "-c", columns, "-o", str(target))]
        command += ["-r", str(spec["repeats"]), "--threads", str(spec["threads"]), "--quiet", *disturbance.arguments]
        subprocesses.run(command, environment={**variables, **disturbance.environment}, timeout_s=_TIMEOUT_S)
        dataset: Any = storage.load(target)
        speedup = metrics.speedup(dataset, unlike="allow")
        latency = metrics.summary(dataset)["latency_median"]
        return {
            name: (latency if name == BASELINE else speedup).sel(compiler=label).item()
            for name, label in labels.items()
        }


def _compare(
    disturbance: Disturbance, beside: str, numbers: Mapping[tuple[str, str], list[Numbers]]
) -> Iterator[Effect]:
    """Compare the numbers with a disturbance to those without, round by round."""
    pairs = list(zip(numbers[disturbance.name, beside], numbers[REFERENCE.name, beside], strict=True))
    for compiler in COMPILERS:
        ratios = np.array(
            [
                disturbed[compiler] / reference[compiler]
                if compiler in disturbed
                # A compiler that is not disturbed gains what the baseline loses.
                else disturbed[BASELINE] / reference[BASELINE]
                for disturbed, reference in pairs
            ]
        )
        low, high = intervals.compute_median_interval(np.log(ratios), LEVEL)
        yield Effect(
            disturbance=disturbance.name,
            beside=beside,
            number="latency of identity" if compiler == BASELINE else f"speed-up of {compiler}",
            ratio=float(np.median(ratios)),
            low=math.exp(low),
            high=math.exp(high),
            spread=float(ratios.max() / ratios.min()),
            rounds=len(ratios),
        )


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
