"""The history: the stored runs of each sweep, compared with each other, as a record of how honest intervals are here.

Nothing is measured. A value of one run should differ from that of another beyond their 95 % intervals once in twenty
times, whatever the machine did meanwhile; where more differ, the intervals of this device are too narrow. How far the
runs differ beyond what their rounds explain is stored, and the intervals of every later run allow for it.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations, islice
from typing import TYPE_CHECKING, Any

from ngbkit import options
from ngbkit.dataset.assembly import list_origins
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import NgbkitError
from ngbkit.hardware import environment
from ngbkit.metrics.comparison import Comparison
from ngbkit.metrics.draws import HOSTED_SD, UNCHECKED_SD
from ngbkit.metrics.pairing import compare
from ngbkit.metrics.rendering import to_texts
from ngbkit.metrics.statistics import estimate_share
from ngbkit.report import Report, Reported
from ngbkit.runs import Summary, folders, summaries
from ngbkit.runs.selfcheck import store
from ngbkit.runs.selfcheck.spread import LEAST_HOURS, LEAST_RUNS, estimate_deviations, merge_deviations
from ngbkit.sweep.json_values import to_json_value

if TYPE_CHECKING:
    import pandas as pd

    from ngbkit.dataset.storage import Data

    Stored = tuple[Summary, Data]

# The latest runs of a sweep that are compared: each with each.
_MOST_RUNS = 8
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """Two runs of one sweep.

    Parameters
    ----------
    workloads
        Names of the networks.
    first, second
        Ids of the two runs.
    hours
        Time between their starts.
    judged, changed
        Number of speed-ups that are conclusive in both runs, and of those that differ beyond their 95 % intervals.
    inconclusive
        Number of other speed-ups: not conclusive in at least one of the two.
    consecutive
        Whether no run of the sweep was between them.
    """

    workloads: tuple[str, ...]
    first: str
    second: str
    hours: float
    judged: int
    changed: int
    inconclusive: int
    consecutive: bool


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class History(Reported):
    """The agreement of the stored runs of a device; displayed as a table.

    Parameters
    ----------
    device
        Its label.
    repetitions
        All pairs of runs of the same sweep on the same hardware with the same libraries.
    deviations
        By compiler, the standard deviation between runs of the logarithm of its speed-up over identity, beyond what
        rounds explain, pooled with what was assumed before and widened for few runs; empty without three runs of one
        sweep within an hour or more.
    runs, hours
        Number of those runs, and the time between the first and the last of a sweep, in hours.
    unlike
        Why other pairs were left out, in sentences.
    """

    device: str
    repetitions: tuple[Repetition, ...]
    deviations: Mapping[str, float] = field(default_factory=dict)
    runs: int = 0
    hours: float = 0.0
    unlike: tuple[str, ...] = ()

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
                "sweep": _name_few(pair.workloads),
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
        lines.append(self._describe_deviations())
        return [*lines, *self.unlike]

    def _describe_deviations(self) -> str:
        if not self.deviations:
            return (
                f"How far speed-ups vary from run to run needs {LEAST_RUNS} runs of one sweep, the first and the last "
                f"at least {LEAST_HOURS:.0f} h apart."
            )
        parts = [f"{100 * deviation:.1f} % ({compiler})" for compiler, deviation in self.deviations.items()]
        return (
            f"Speed-ups over identity vary by {', '.join(parts)} from run to run (standard deviations of {self.runs} "
            f"runs over {self.hours:.1f} h, beyond what their rounds explain). Intervals of later runs allow for it."
        )

    def to_report(self) -> Report:
        """Build the conclusions and the table of the pairs of runs."""
        return Report(sentences=self.conclude(), frames=[to_texts(self.to_table())] if self.repetitions else [])

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON: every pair, and the share with its interval."""
        rate, low, high = self.share
        json_value: dict[str, Any] = to_json_value(
            {**asdict(self), "share": rate, "share_low": low, "share_high": high}
        )
        return json_value


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
    spreads: list[_Spread] = []
    for repeated in by_sweep.values():
        if len(repeated) > 1:
            loaded = _load(list(islice(repeated, _MOST_RUNS))[::-1], reasons)
            repetitions += _compare_each(loaded, label, reasons)
            spreads += _estimate_spread(loaded, label)
    # The latest sweep comes first: what other hardware or other numbers of threads did, says nothing of this one.
    spreads = [spread for spread in spreads if (spread.chip, spread.threads) == (spreads[0].chip, spreads[0].threads)]
    history = History(
        device=label,
        repetitions=tuple(repetitions),
        deviations=merge_deviations([spread.deviations for spread in spreads]),
        runs=sum(spread.runs for spread in spreads),
        hours=max((spread.hours for spread in spreads), default=0.0),
        unlike=tuple(f"Not compared, {count} times: {reason}" for reason, count in reasons.items()),
    )
    if spreads:
        machine = {"chip": spreads[0].chip, "threads": spreads[0].threads}
        store.save_history(label, {**machine, "deviations": history.deviations, "hours": history.hours})
    return history


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spread:
    """The deviations between the runs of one sweep, and their machine."""

    deviations: Mapping[str, float]
    runs: int
    hours: float
    chip: str
    threads: int


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


def _estimate_spread(loaded: Sequence[Stored], device: str) -> list[_Spread]:
    """Estimate the spread of the runs that are like the latest one; nothing if they are too few, or too close."""
    if not loaded:
        return []
    latest = loaded[-1][1]
    comparable = [stored for stored in loaded if not _find_differences(stored[1], latest, device)]
    hours = (comparable[-1][0].created - comparable[0][0].created) / 3600
    if len(comparable) < LEAST_RUNS or hours < LEAST_HOURS:
        return []
    machine = _read_environment(latest, device)
    threads = loaded[-1][0].request.get("threads") or machine.get("cores_usable", 0)
    is_virtual = bool((machine.get("conditions") or {}).get("virtual_machine"))
    prior = HOSTED_SD if is_virtual else UNCHECKED_SD
    deviations = estimate_deviations([data for _, data in comparable], device, prior)
    chip = str(machine.get("chip", ""))
    return [_Spread(deviations=deviations, runs=len(comparable), hours=hours, chip=chip, threads=threads)]


def _compare_each(loaded: Sequence[Stored], device: str, reasons: Counter[str]) -> list[Repetition]:
    """Compare runs of one sweep, the earliest first; count why some were left out."""
    repetitions = []
    for (index, (first, earlier)), (other, (second, later)) in combinations(enumerate(loaded), 2):
        differences = _find_differences(earlier, later, device)
        if differences:
            reasons[_name_few(differences, "; ")] += 1
            continue
        try:
            comparison = compare(earlier, later)
        except NgbkitError as error:
            reasons[str(error)] += 1
            continue
        repetitions.append(_count(comparison, device, first, second, consecutive=other == index + 1))
    return repetitions


def _count(comparison: Comparison, device: str, first: Summary, second: Summary, *, consecutive: bool) -> Repetition:
    on_device = comparison.on_device(device)
    return Repetition(
        workloads=tuple(first.networks),
        first=first.id,
        second=second.id,
        hours=(second.created - first.created) / 3600,
        judged=len(on_device.judged),
        changed=int((on_device.judged["is"] != "same").sum()),
        inconclusive=on_device.inconclusive,
        consecutive=consecutive,
    )


def _find_differences(earlier: Data, later: Data, device: str) -> list[str]:
    before, after = (_read_environment(data, device) for data in (earlier, later))
    return environment.find_differences(before, after)


def _read_environment(data: Data, device: str) -> dict[str, Any]:
    environments: dict[str, dict[str, Any]] = json.loads(data.attrs.get("environments") or "{}")
    return environments.get(device, {})


def _name_few(names: Sequence[str], separator: str = ", ") -> str:
    more = f"{separator}and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return separator.join(names[:_MOST_NAMED]) + more
