"""Compares two runs of one sweep, on two machines or two days."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ngbkit import validation
from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import list_labels
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import UsageError
from ngbkit.hardware import environment
from ngbkit.metrics.beside import identify_trial, list_turns
from ngbkit.metrics.compared_runs import ComparedRuns, compare_environments, list_altered, list_differences, pair_runs
from ngbkit.metrics.compared_trials import (
    VALUES,
    compute_changes,
    compute_values,
    describe_left_out,
    find_winners,
    list_unchecked,
    list_unjudged,
    list_unlike,
    list_unmatched,
)
from ngbkit.metrics.drift import estimate_apart_sd
from ngbkit.metrics.gates.gate import Gate, build_gate
from ngbkit.metrics.gates.regressions import MARGIN, judge
from ngbkit.metrics.metric import find_metric, load_frame_metrics
from ngbkit.sweep.column import BASELINE
from ngbkit.sweep.json_values import to_json_value

if TYPE_CHECKING:
    import pandas as pd


_KEYS = ("device", "compiler", "batch_size")
# The packages that run the baseline.
_BASELINE_PACKAGES = tuple(f"{package} was " for package in ("torch", "onnxruntime", "onnxruntime-gpu"))
# The words for a metric that rises and for one that falls.
_WORDS = {"throughput": ("faster", "slower")}
NOT_CONCLUSIVE, NOT_CHECKED, SAME = "not conclusive", "not checked", "same measurement"
"""The verdicts on a trial that differs neither way for sure, on an unchecked one, and on one that both runs have."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Comparison:
    """Two runs of one sweep, side by side.

    Parameters
    ----------
    metric
        The compared metric.
    runs
        The names and times of the two, the pairs of their networks, and the difference of their cells.
    trials
        One row per trial that both runs measured: its labels in the first run; ``first`` and ``second`` with the ends
        of their intervals, ``change`` (the second over the first) with its own, and ``is``: ``"higher"``, ``"lower"``,
        or ``"same"`` if the intervals cannot distinguish them; and ``conclusive``, false where either run had too few
        uncontended rounds, or was not checked.
    winners
        One row per group: the fastest compiler of each run that both checked, and ``another``, true if the first run's
        winner surely lost its lead.
    environments
        One row per property, one column per run and device.
    unlike
        The differences between the machines, the contracts and the files of the two, in sentences.
    incomparable
        Those of `unlike` that no gate judges unless it is told to: other hardware, or another contract.
    missing
        The number of trials that only one run measured.
    keys
        The columns that are labels.
    failed
        One row per trial that the first run measured and that failed in the second: its labels, and ``reason``.
    absent
        The labels of the other trials that only the first run measured.
    unjudged
        One row per trial that failed in the first run: its labels, and ``reason``.
    unchecked
        Why trials of `trials` were not checked in either run, by their index there.
    drift_sd
        The standard deviation, between two times, of the logarithm of a throughput over itself, which is in the
        intervals of ``change``; 0 for a ratio of trials that each run measured in the same rounds, and for throughputs
        of trials that took turns.
    left_out
        What no trial of the other run matches, in sentences.
    """

    metric: str
    runs: ComparedRuns
    trials: pd.DataFrame
    winners: pd.DataFrame
    environments: pd.DataFrame
    unlike: tuple[str, ...]
    incomparable: tuple[str, ...]
    missing: int
    keys: list[str]
    failed: pd.DataFrame
    absent: pd.DataFrame
    unjudged: pd.DataFrame
    unchecked: Mapping[int, str]
    drift_sd: float
    left_out: tuple[str, ...]

    @property
    def words(self) -> tuple[str, str]:
        """The verdicts on a trial whose metric rose, and on one whose metric fell."""
        return _WORDS.get(self.metric, ("higher", "lower"))

    @property
    def verdicts(self) -> pd.Series[str]:
        """The verdict on each trial, one of `words` if that is conclusive."""
        trials = self.trials
        is_judged = trials.index.isin(self.judged.index) & ~trials.index.isin(self.unchecked)
        higher, lower = self.words
        verdicts = trials["is"].map({"higher": higher, "lower": lower, "same": NOT_CONCLUSIVE})
        verdicts = verdicts.where(is_judged, NOT_CONCLUSIVE).mask(trials.index.isin(self.unchecked), NOT_CHECKED)
        return verdicts.mask(self._is_same, SAME)

    @property
    def judged(self) -> pd.DataFrame:
        """The trials that can be judged: conclusive in both runs, with an interval in each."""
        trials = self._bounded
        return trials[trials["conclusive"].astype(bool)]

    @property
    def inconclusive(self) -> int:
        """The number of trials with intervals that are not conclusive in either run."""
        return len(self._bounded) - len(self.judged)

    def on_device(self, label: str) -> Comparison:
        """The comparison of the trials on one device, by its label in the first run."""
        names = ("trials", "winners", "failed", "absent", "unjudged")
        frames = {name: (frame := getattr(self, name))[frame["device"] == label] for name in names}
        indices = frames["trials"].index
        unchecked = {index: reason for index, reason in self.unchecked.items() if index in indices}
        return replace(self, **frames, unchecked=unchecked)

    @property
    def share(self) -> str:
        """The number of trials that differ beyond their intervals, and the number that differ by chance."""
        judged, total = self.judged, len(self._bounded)
        counts = [int((judged["is"] == direction).sum()) for direction in ("higher", "lower")]
        parts = [f"{count} {word}" for count, word in zip(counts, self.words, strict=True) if count]
        if total > sum(counts):
            parts.append(f"{total - sum(counts)} {NOT_CONCLUSIVE}")
        by_chance = round((1 - LEVEL) * len(judged))
        number = f"about {by_chance}" if by_chance else "less than 1"
        chance = f"{100 * LEVEL:g} % intervals, of which {number} would differ by chance alone"
        return (
            f"{self.metric} of {total} trials: {', '.join(parts)} ({chance})"
            if total
            else "no trial was measured again"
        )

    @property
    def is_remeasured(self) -> bool:
        """True if any trial was measured in both runs."""
        return len(self._bounded) > 0

    @property
    def _bounded(self) -> pd.DataFrame:
        """The trials with intervals: what is compared with itself, as the baseline's speed-up, cannot differ."""
        trials = self.trials
        has_ends = [(trials[f"{run}_low"] < trials[f"{run}_high"]).to_numpy() for run in ("first", "second")]
        return trials[has_ends[0] & has_ends[1] & ~self._is_same.to_numpy()]

    @property
    def _is_same(self) -> pd.Series[bool]:
        """The trials of which both runs have the same measurement: no two agree to the last bit."""
        trials = self.trials
        pairs = [trials[f"first{end}"] == trials[f"second{end}"] for end in ("", "_low", "_high")]
        return pairs[0] & pairs[1] & pairs[2]

    def gate(self, margin: float | str = MARGIN, *, across_devices: bool = False) -> Gate:
        """Judge each trial: whether it is slower by more than a margin, beyond what chance does to any trial.

        The two runs are from different times, so `metric` should be one that a slower machine does not change, such as
        ``"speedup"``: it does not show a change that slows the baseline as much. The interval of a throughput allows
        for what a machine does from minute to minute. Measure both versions in turns to see small changes:
        `ngbkit.gate`.

        Parameters
        ----------
        margin
            The slowdown that is accepted: 0.02, or ``"2%"``.
        across_devices
            Whether runs of different hardware, or under different contracts, are judged all the same.

        Raises
        ------
        UsageError
            The margin is no share; the runs have other networks; or they are incomparable, without `across_devices`.
        """
        share = validation.check("margin", validation.Margin, margin)
        if self.runs.renamed:
            before, after = next(iter(self.runs.renamed.items()))
            raise UsageError(
                f"invalid gate: got {before} in one run and {after} in the other; expected networks of the same names. "
                "Measure both in turns: `ngbkit gate`; or rename one by .assign_coords(workload=[…])."
            )
        if self.incomparable and not across_devices:
            raise UsageError(
                f"invalid gate: got two runs that differ by more than their code: {'; '.join(self.incomparable)}; "
                "expected two of one machine. Measure both in turns: `ngbkit gate`; or judge them all the same: "
                "--across-devices, or across_devices=True."
            )
        trials = self.trials
        slowdown = {"slowdown": "change", "low": "change_high", "high": "change_low"}
        values = {name: 1 / trials[column] for name, column in slowdown.items()}
        values |= {"rounds": trials["rounds"], "conclusive": trials["conclusive"].astype(bool)}
        verdicts = judge(**values, level=LEVEL, margin=share)
        judged = trials[self.keys].assign(
            before=trials["first"], after=trials["second"], **values, verdict=verdicts, reason=self._list_reasons()
        )
        # What is compared with itself, as the baseline's speed-up, says nothing.
        judged = judged[~((trials["first_low"] == trials["first_high"]) & (trials["change"] == 1))]
        return build_gate(
            judged,
            failed=self.failed,
            absent=self.absent,
            unjudged=self.unjudged,
            margin=share,
            compared=f"{self.metric} of two runs",
            warnings=self._list_warnings(),
        )

    def _list_reasons(self) -> list[str]:
        """List why each of the trials was not checked; empty where it was."""
        return [self.unchecked.get(index, "") for index in self.trials.index]

    def _list_warnings(self) -> list[str]:
        """List what weakens the verdicts of a gate."""
        if self.incomparable:
            return [f"the two runs differ by more than their code: {'; '.join(self.incomparable)}"]
        baseline = [line for line in self.unlike if line.startswith(_BASELINE_PACKAGES)]
        if baseline and "compiler" in load_frame_metrics()[self.metric].relative_to:
            return [
                f"{BASELINE} itself may have changed, and every {self.metric} is over it: {'; '.join(baseline)}. "
                "Compare --metric throughput too, or measure both in turns: `ngbkit gate`."
            ]
        if self.metric == "throughput":
            return [
                f"two runs at different times differ by about {100 * self.drift_sd:.0f} % (standard "
                "deviation), which no number of rounds reduces. Measure both in turns: `ngbkit gate`."
            ]
        return []

    def to_json(self) -> dict[str, Any]:
        """Everything but the environments, as plain JSON."""
        return {
            "metric": self.metric,
            "trials": to_json_value(self.trials.to_dict("records")),
            "winners": to_json_value(self.winners.to_dict("records")),
            "unlike": list(self.unlike),
            "missing": self.missing,
        }

    def __str__(self) -> str:
        another, unmeasured = int(self.winners["another"].sum()), int(self._is_same.sum())
        reasons = ", or ".join(dict.fromkeys(self.unchecked.values()))
        parts = [
            f"the best compiler surely changed in {another} of {len(self.winners)} groups" if another else "",
            f"{unmeasured} trials are the same measurement in both" if unmeasured and self.words[0] == "faster" else "",
            f"{len(self.unchecked)} trials were {reasons}" if reasons else "",
            f"{len(self.failed)} trials of the first run failed in the second" if len(self.failed) else "",
            f"{self.missing} trials were measured in only one of the two" if self.missing else "",
        ]
        remarks = "; ".join(filter(None, parts))
        return f"{self.share}. {remarks[0].upper()}{remarks[1:]}." if remarks else f"{self.share}."

    __repr__ = __str__


def compare(
    first: Data, second: Data, metric: str | None = None, *, names: Sequence[str] = (), beside: str = ""
) -> Comparison:
    """Compare two runs of the same sweep, and find the changes beyond uncertainty.

    Parameters
    ----------
    first, second
        The datasets of two runs. Networks are matched by their names, and those without a namesake by their place if
        there are as many in each run. Devices are matched by their labels; if each run has one device, these are
        matched whatever their labels.
    metric
        A metric of each trial. Default: the speed-up, since machines differ in throughput and a result reproduces if
        its speed-ups do; the throughput where a network changed, and its baseline with it, or without a baseline.
    names
        The names of the two runs, for titles.
    beside
        The word by which ``--beside`` names the first run. Default: its id.

    Raises
    ------
    UnknownNameError
        There is no such metric.
    UsageError
        The two have no trial in common.
    MetricError
        A dataset lacks the reference of the metric.

    Notes
    -----
    A change is a ratio of two independent estimates; on a logarithmic scale the half widths of their intervals add in
    quadrature. One in twenty trials changes by chance alone. That of a throughput allows for the drift of the machine
    between both runs (`ngbkit.metrics.drift`), unless the trials took turns in one run: then the ratio is taken round
    by round.
    """
    runs = pair_runs(first, second, names, beside)
    record = find_metric(metric or _choose_metric(first, second, runs), load_frame_metrics())
    origins, outcomes = (compute_values(data, record, LEVEL) for data in (first, second))
    outcomes = outcomes.assign(workload=outcomes["workload"].replace({b: a for a, b in runs.renamed.items()}))
    labels = [frame["device"].unique().tolist() for frame in (origins, outcomes)]
    if all(len(devices) == 1 for devices in labels):
        outcomes = outcomes.assign(device=labels[0][0])
    earlier, later = (frame[np.isfinite(frame["value"])] for frame in (origins, outcomes))
    factors, others = (
        [name for name in map(str, frame) if name not in ("workload", *_KEYS, *VALUES)] for frame in (earlier, later)
    )
    # A factor that one run lacks has no value there: each trial of the other one is matched.
    keys = ["workload", *(name for name in factors if name in others), *_KEYS]
    joined = earlier.merge(later, on=keys, suffixes=("_first", "_second"))
    if joined.empty:
        raise UsageError(
            f"no trial in common: the first dataset has {_name_few(earlier['workload'])} on "
            f"{_name_few(earlier['device'])}, the second {_name_few(later['workload'])} on "
            f"{_name_few(later['device'])}. Compare two runs of one sweep."
        )
    columns = ["workload", *dict.fromkeys([*factors, *others]), *_KEYS]
    drift_sd = 0.0 if record.relative_to else math.hypot(*map(estimate_apart_sd, (first, second)))
    turns = {} if record.relative_to else list_turns(first, second, runs.renamed)
    labels_of_trials = joined[columns].to_dict("records") if turns else []
    paired = [turns.get(identify_trial(each), (math.nan, math.nan)) for each in labels_of_trials]
    if paired and not any(math.isnan(ratio) for ratio, _ in paired):
        drift_sd = 0.0
    trials, unchecked = compute_changes(joined, columns, drift_sd, paired), list_unchecked(joined)
    incomparable = [*list_differences(first, second, environment.find_hardware_differences), *list_unlike(joined)]
    unlike = [*list_differences(first, second, environment.find_differences), *list_altered(first, second)]
    lost, excess = (list_unmatched(frame, joined, keys) for frame in (earlier, later))
    reasons = outcomes[[*keys, "reason"]].drop_duplicates(keys)
    absent = lost[[name for name in columns if name in lost]].merge(reasons, on=keys, how="left")
    has_failed = (absent["reason"].fillna("") != "").to_numpy()
    return Comparison(
        metric=record.name,
        runs=runs,
        trials=trials,
        winners=find_winners(trials[~trials.index.isin(unchecked)], [name for name in columns if name != "compiler"]),
        environments=compare_environments(first, second),
        unlike=tuple(dict.fromkeys([*incomparable, *unlike])),
        incomparable=tuple(incomparable),
        missing=len(lost) + len(excess),
        keys=columns,
        failed=absent[has_failed],
        absent=absent[~has_failed].drop(columns="reason"),
        unjudged=list_unjudged(origins, outcomes, keys),
        unchecked=unchecked,
        drift_sd=drift_sd,
        left_out=tuple(describe_left_out(earlier, later, keys, runs.names)),
    )


def _choose_metric(first: Data, second: Data, runs: ComparedRuns) -> str:
    """Choose the throughput where speed-ups are over other networks, or over none."""
    has_baseline = all(
        any(BASELINE in list_labels(node, "compiler") for node in nodes(data).values()) for data in (first, second)
    )
    return "speedup" if has_baseline and not runs.is_changed else "throughput"


def _name_few(labels: pd.Series[str]) -> str:
    return ", ".join(labels.unique()[:4])
