"""The history: the stored runs of each sweep, compared with each other, as a record of how honest intervals are here.

Nothing is measured. A value of one run should differ from that of another beyond their 95 % intervals once in twenty
times, whatever the machine did meanwhile; where more differ, the intervals of this device are too narrow. How far the
runs differ beyond what their rounds explain is stored, and the intervals of every later run allow for it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ngbkit import options
from ngbkit.dataset.assembly import list_origins, nodes
from ngbkit.dataset.environments import read_environments
from ngbkit.dataset.long_form import to_frame
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import MetricError, NgbkitError
from ngbkit.hardware import environment
from ngbkit.metrics.draws import UNCHECKED_SD
from ngbkit.metrics.pairing import compare
from ngbkit.metrics.ratios import assume_host_sd
from ngbkit.metrics.rendering import to_texts
from ngbkit.metrics.scaling import SPEEDUP
from ngbkit.metrics.statistics import estimate_deviation, estimate_share, widen_for_freedom
from ngbkit.report import Report, Reported
from ngbkit.runs import folders, summaries
from ngbkit.runs.selfcheck import store
from ngbkit.runs.selfcheck.noise import set_process_sd
from ngbkit.runs.summary import Summary
from ngbkit.sweep.column import BASELINE
from ngbkit.sweep.json_values import to_json_value
from ngbkit.user_text import join_names

if TYPE_CHECKING:
    import pandas as pd

    from ngbkit.dataset.storage import Data

    Stored = tuple[Summary, Data]

# The latest runs of a sweep that are compared: each with each.
_MOST_RUNS = 8
_MOST_NAMED = 3
# The runs that a deviation needs, and the time between the first and the last.
_LEAST_RUNS, _LEAST_HOURS = 3, 1.0
# What was assumed before counts as many degrees of freedom: three runs that agree by chance do not outweigh it.
_PRIOR = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """Two runs of one sweep."""

    workloads: tuple[str, ...]  # the names of the networks
    first: str  # the id of the run
    second: str
    hours: float  # between their starts
    judged: int  # speed-ups that are conclusive in both runs
    changed: int  # those of them that differ beyond their 95 % intervals
    inconclusive: int  # the other speed-ups: not conclusive in at least one of the two
    consecutive: bool  # whether no run of the sweep was between them


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class History(Reported):
    """The agreement of the stored runs of a device; displayed as a table."""

    device: str  # its label
    repetitions: tuple[Repetition, ...]  # all pairs of runs of the same sweep, hardware and libraries
    # By compiler, the standard deviation between runs of the logarithm of its speed-up over identity, beyond what
    # rounds explain, pooled with what was assumed before and widened for few runs; empty without three runs of one
    # sweep within an hour or more.
    deviations: Mapping[str, float] = field(default_factory=dict)
    runs: int = 0  # those runs
    hours: float = 0.0  # between the first and the last of a sweep
    unlike: tuple[str, ...] = ()  # why other pairs were left out, in sentences

    @property
    def share(self) -> tuple[float, float, float]:
        """The share of conclusive speed-ups that differ beyond their intervals, with its own 95 % interval.

        Pairs that share a run are not independent, so the interval is that of as many values as consecutive runs have.
        """
        judged = sum(pair.judged for pair in self.repetitions)
        changed = sum(pair.changed for pair in self.repetitions)
        independent = sum(pair.judged for pair in self.repetitions if pair.consecutive)
        if not judged:
            return math.nan, math.nan, math.nan
        rate = changed / judged
        _, low, high = estimate_share(round(rate * independent), independent, LEVEL)
        return rate, min(low, rate), max(high, rate)

    def to_table(self) -> pd.DataFrame:
        """Build a table with one row for each pair of runs."""
        import pandas as pd

        rows = [
            {
                "sweep": join_names(pair.workloads, most=_MOST_NAMED),
                "first": pair.first,
                "second": pair.second,
                "apart": f"{pair.hours:.1f} h",
                "conclusive": pair.judged,
                "differ": pair.changed,
                "by chance": f"{(1 - LEVEL) * pair.judged:.1f}",
                "not conclusive": pair.inconclusive,
            }
            for pair in self.repetitions
        ]
        table = pd.DataFrame(rows)
        table.attrs["title"] = f"speed-ups of two runs that differ beyond their {LEVEL:.0%} intervals, on {self.device}"
        return table

    def conclude(self) -> list[str]:
        """Say in sentences whether the intervals of this device are honest."""
        if not self.repetitions:
            lines = [
                f"There are no two runs of one sweep on {self.device} to compare. Run a sweep again, in an hour or on "
                "another day: `ngbkit run` with the same arguments, or `ngbkit selfcheck`."
            ]
            return [*lines, *self.unlike]
        rate, low, high = self.share
        judged = sum(pair.judged for pair in self.repetitions)
        changed = sum(pair.changed for pair in self.repetitions)
        lines = [
            f"{changed} of {judged} conclusive speed-ups differ beyond their {LEVEL:.0%} intervals: {100 * rate:.1f} % "
            f"({100 * low:.1f} to {100 * high:.1f} %); intervals that are right make about {100 * (1 - LEVEL):.0f} % "
            "differ."
            if judged
            else "No speed-up is conclusive in two runs."
        ]
        if low > 1 - LEVEL:
            lines.append("They are too narrow here: run `ngbkit selfcheck`, and trust no difference as small as these.")
        parts = [f"{100 * deviation:.1f} % ({compiler})" for compiler, deviation in self.deviations.items()]
        lines.append(
            f"Speed-ups over identity vary by {', '.join(parts)} from run to run (standard deviations of {self.runs} "
            f"runs over {self.hours:.1f} h, beyond what their rounds explain). Intervals of later runs allow for it."
            if parts
            else f"How far speed-ups vary from run to run needs {_LEAST_RUNS} runs of one sweep, the first and the "
            f"last at least {_LEAST_HOURS:.0f} h apart."
        )
        return [*lines, *self.unlike]

    def to_report(self) -> Report:
        """Build the conclusions and the table of the pairs of runs."""
        return Report(sentences=self.conclude(), frames=[to_texts(self.to_table())] if self.repetitions else [])

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON: every pair, and the share with its interval."""
        rate, low, high = self.share
        return dict(to_json_value({**asdict(self), "share": rate, "share_low": low, "share_high": high}))


def compare_runs(device: str | None = None) -> History:
    """Compare the stored runs of each sweep with each other, and count the speed-ups that differ.

    How far they differ beyond what their rounds explain is stored, and the intervals of later runs allow for it.

    Parameters
    ----------
    device
        Label of the device. Default: the option `device`.

    Returns
    -------
    History
        Displayed as a table. The latest eight runs of a sweep are compared, each with each, if their hardware and
        libraries are the same.

    Examples
    --------
    >>> from ngbkit.runs.selfcheck import compare_runs
    >>> compare_runs()  # doctest: +SKIP
    """
    label = device or options.get_device()
    by_sweep: dict[str, list[Summary]] = {}
    for summary in summaries():
        if label in summary.request["devices"] and len(summary.request["compilers"]) > 1 and summary.statuses.get("ok"):
            by_sweep.setdefault(summary.sweep_id, []).append(summary)
    repetitions: list[Repetition] = []
    reasons: Counter[str] = Counter()
    machine: dict[str, Any] = {}
    deviations: dict[str, float] = {}
    runs, hours = 0, 0.0
    for repeated in by_sweep.values():
        if len(repeated) < 2:
            continue
        loaded = _load(list(islice(repeated, _MOST_RUNS))[::-1], reasons)
        repetitions += _compare_each(loaded, label, reasons)
        comparable = [stored for stored in loaded if not _find_differences(stored[1], loaded[-1][1], label)]
        if len(comparable) < _LEAST_RUNS or _count_hours(comparable) < _LEAST_HOURS:
            continue
        # The latest sweep comes first: what other hardware or other numbers of threads did, says nothing of this one.
        latest, data = comparable[-1]
        described = read_environments(data).get(label, {})
        threads = latest.request.get("threads") or described.get("cores_usable", 0)
        current = {"chip": str(described.get("chip", "")), "threads": threads}
        machine = machine or current
        if current == machine:
            runs, hours = runs + len(comparable), max(hours, _count_hours(comparable))
            for compiler, deviation in _estimate_deviations(comparable, label).items():
                deviations[compiler] = max(deviations.get(compiler, 0.0), deviation)
    history = History(
        device=label,
        repetitions=tuple(repetitions),
        deviations=deviations,
        runs=runs,
        hours=hours,
        unlike=tuple(f"Not compared, {count} times: {reason}" for reason, count in reasons.items()),
    )
    if runs:
        store.save_history(label, {**machine, "deviations": history.deviations, "hours": history.hours})
    return history


def _load(repeated: Sequence[Summary], reasons: Counter[str]) -> list[Stored]:
    """Load the datasets of runs; count why some were left out."""
    loaded = []
    for summary in repeated:
        try:
            data = folders.load_dataset(folders.get_runs_dir() / summary.id)
        except (NgbkitError, OSError) as error:
            reasons[str(error)] += 1
            continue
        if list_origins(data):  # it agrees with an earlier run because it has the same samples
            reasons["runs with known trials of others repeat nothing"] += 1
        else:
            loaded.append((summary, data))
    return loaded


def _count_hours(stored: Sequence[Stored]) -> float:
    return (stored[-1][0].created - stored[0][0].created) / 3600


def _estimate_deviations(stored: Sequence[Stored], device: str) -> dict[str, float]:
    """Estimate the standard deviation, between runs, of the logarithm of each compiler's speed-up over identity.

    All networks and batch sizes of a sweep are pooled, with the deviation that was assumed before. An interval of the
    normal distribution with the result is as wide as one of Student's t with the deviation of so few runs.
    """
    import pandas as pd

    prior = max(UNCHECKED_SD, assume_host_sd(read_environments(stored[-1][1]).get(device, {})))
    values = [_compute_speedups(data, device).assign(run=number) for number, (_, data) in enumerate(stored)]
    frame = pd.concat(values, ignore_index=True)
    keys = [name for name in frame if name not in ("log", "variance", "run")]
    variances: dict[str, list[float]] = {}
    counts: dict[str, int] = {}
    for labels, cell in frame.groupby(keys, dropna=False, sort=False):
        if len(cell) >= _LEAST_RUNS:
            compiler = str(dict(zip(keys, labels, strict=True))["compiler"])
            between = float(cell["log"].var(ddof=1) - cell["variance"].mean())
            variances.setdefault(compiler, []).append(between)
            counts[compiler] = min(counts.get(compiler, len(cell)), len(cell))
    deviations = {}
    for compiler, parts in variances.items():
        freedom, variance = counts[compiler] - 1, max(0.0, float(np.mean(parts)))
        pooled = (_PRIOR * prior**2 + freedom * variance) / (_PRIOR + freedom)
        deviations[compiler] = widen_for_freedom(math.sqrt(pooled), _PRIOR + freedom)
    return deviations


def _compute_speedups(data: Data, device: str) -> pd.DataFrame:
    """Compute the logarithm of each conclusive speed-up on a device, and its variance by its own rounds."""
    import pandas as pd

    frames = []
    for node in nodes(data).values():
        try:
            result = SPEEDUP(set_process_sd(node, 0.0), ci=LEVEL, unlike="mask")
        except MetricError:
            continue
        assert isinstance(result, xr.Dataset)
        frame = to_frame(result)
        usable = (frame["device"] == device) & (frame["compiler"] != BASELINE) & frame["conclusive"].astype(bool)
        frame = frame[usable & (frame["ci_low"] > 0) & np.isfinite(frame["speedup"])]
        deviation = estimate_deviation(frame["ci_low"], frame["ci_high"])
        columns = frame.drop(columns=["speedup", "ci_low", "ci_high", "conclusive"])
        frames.append(columns.assign(log=np.log(frame["speedup"]), variance=deviation**2))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=["compiler", "log", "variance"])


def _compare_each(loaded: Sequence[Stored], device: str, reasons: Counter[str]) -> list[Repetition]:
    """Compare runs of one sweep, the earliest first; count why some were left out."""
    repetitions = []
    for (index, (first, earlier)), (other, (second, later)) in combinations(enumerate(loaded), 2):
        differences = _find_differences(earlier, later, device)
        if differences:
            reasons[join_names(differences, "; ", most=_MOST_NAMED)] += 1
            continue
        try:
            comparison = compare(earlier, later)
        except NgbkitError as error:
            reasons[str(error)] += 1
            continue
        on_device = comparison.on_device(device)
        repetitions.append(
            Repetition(
                workloads=tuple(first.networks),
                first=first.id,
                second=second.id,
                hours=(second.created - first.created) / 3600,
                judged=len(on_device.judged),
                changed=int((on_device.judged["is"] != "same").sum()),
                inconclusive=on_device.inconclusive,
                consecutive=other == index + 1,
            )
        )
    return repetitions


def _find_differences(earlier: Data, later: Data, device: str) -> list[str]:
    before, after = (read_environments(data).get(device, {}) for data in (earlier, later))
    return environment.find_differences(before, after)
