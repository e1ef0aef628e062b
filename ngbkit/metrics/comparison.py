"""Compares two runs of one sweep, on two machines or two days."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from ngbkit import validation
from ngbkit.dataset.dataset_hash import ALTERED
from ngbkit.dataset.environments import read_environments
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import UsageError
from ngbkit.hardware import environment
from ngbkit.metrics.compared_trials import VALUES, compute_values, list_unchecked, list_unjudged, list_unlike
from ngbkit.metrics.drift import APART_SD, HOSTED_APART_SD
from ngbkit.metrics.gates.gate import Gate, build_gate
from ngbkit.metrics.gates.regressions import MARGIN, judge
from ngbkit.metrics.metric import find_metric, load_frame_metrics
from ngbkit.sweep.json_values import to_json_value
from ngbkit.sweep.trials import BASELINE
from ngbkit.user_text import format_value

if TYPE_CHECKING:
    import pandas as pd


_KEYS = ("device", "compiler", "batch_size")
# The packages that run the baseline.
_BASELINE_PACKAGES = tuple(f"{package} was " for package in ("torch", "onnxruntime", "onnxruntime-gpu"))
_DEVICE_KEYS = ("chip", "cores_usable", "memory_bytes", "system", "python", "ngbkit_commit")


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Two runs of one sweep, side by side.

    Parameters
    ----------
    metric
        The compared metric.
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
        The standard deviation, between two times, of the logarithm of a throughput over itself.
    """

    metric: str
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
        """The number of conclusive values that differ beyond their intervals, and the number that differ by chance."""
        judged = self.judged
        changed = int((judged["is"] != "same").sum())
        line = (
            f"{changed} of {len(judged)} conclusive values of {self.metric} differ beyond their {LEVEL:.0%} intervals; "
            f"chance alone makes about {(1 - LEVEL) * len(judged):.2g} differ"
        )
        return f"{line}; {self.inconclusive} more are not conclusive" if self.inconclusive else line

    @property
    def _bounded(self) -> pd.DataFrame:
        """The trials with intervals: what is compared with itself, as the baseline's speed-up, cannot differ."""
        trials = self.trials
        has_ends = [(trials[f"{run}_low"] < trials[f"{run}_high"]).to_numpy() for run in ("first", "second")]
        return trials[has_ends[0] & has_ends[1]]

    def gate(self, margin: float | str = MARGIN, *, across_devices: bool = False) -> Gate:
        """Judge each trial: whether it is slower by more than a margin, beyond what chance does to any trial.

        The two runs are from different times, so `metric` should be one that a slower machine does not change, such as
        ``"speedup"``: it does not show a change that slows the baseline as much. A throughput is widened by what a
        machine does from minute to minute. Measure both versions in turns to see small changes: `ngbkit.gate`.

        Parameters
        ----------
        margin
            The slowdown that is accepted: 0.02, or ``"2%"``.
        across_devices
            Whether runs of different hardware, or under different contracts, are judged all the same.

        Raises
        ------
        UsageError
            The margin is no share; or the runs are incomparable, without `across_devices`.
        """
        share = validation.check("margin", validation.Margin, margin)
        if self.incomparable and not across_devices:
            raise UsageError(
                f"invalid gate: got two runs that differ by more than their code: {'; '.join(self.incomparable)}; "
                "expected two of one machine. Measure both in turns: `ngbkit gate`; or judge them all the same: "
                "--across-devices, or across_devices=True."
            )
        trials = self.trials
        slowdown = {"slowdown": "change", "low": "change_high", "high": "change_low"}
        values = {name: 1 / trials[column] for name, column in slowdown.items()}
        if self.metric == "throughput":
            drift = self.drift_sd * NormalDist().inv_cdf((1 + LEVEL) / 2)
            half = np.hypot(np.log(values["high"] / values["low"]) / 2, drift)
            values |= {"low": values["slowdown"] * np.exp(-half), "high": values["slowdown"] * np.exp(half)}
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

    @staticmethod
    def rows(trials: pd.DataFrame) -> list[dict[str, str]]:
        """Format trials for a table."""
        names = list(map(str, trials.columns))
        labels = [name for name in names if not name.startswith(("first", "second", "change"))][:-3]
        return [
            {
                **{name: format_value(row[name]) for name in labels},
                **{column: _format_interval(row, column) for column in ("first", "second", "change")},
                "is": row["is"],
            }
            for row in (dict(zip(names, values, strict=True)) for values in trials.itertuples(index=False))
        ]

    def __str__(self) -> str:
        another = int(self.winners["another"].sum())
        summary = f"{self.share}; the best compiler surely changed in {another} of {len(self.winners)} groups"
        if self.unchecked:
            summary = (
                f"{summary}; {len(self.unchecked)} trials were {', or '.join(dict.fromkeys(self.unchecked.values()))}"
            )
        return f"{summary}; {self.missing} trials were measured in only one of the two" if self.missing else summary


def compare(first: Data, second: Data, metric: str = "speedup") -> Comparison:
    """Compare two runs of the same sweep, and find the changes beyond uncertainty.

    Parameters
    ----------
    first, second
        The datasets of two runs. Devices are matched by their labels; if each run has one device, these are matched
        whatever their labels.
    metric
        A metric of each trial. Machines differ in throughput; a result reproduces if its speed-ups do.

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
    quadrature. One in twenty trials changes by chance alone.
    """
    record = find_metric(metric, load_frame_metrics())
    origins, outcomes = (compute_values(data, record, LEVEL) for data in (first, second))
    labels = [frame["device"].unique().tolist() for frame in (origins, outcomes)]
    if all(len(devices) == 1 for devices in labels):
        outcomes = outcomes.assign(device=labels[0][0])
    earlier, later = (frame[np.isfinite(frame["value"])] for frame in (origins, outcomes))
    factors = [name for name in map(str, earlier) if name not in ("workload", *_KEYS, *VALUES)]
    if set(factors) != {name for name in later if name not in ("workload", *_KEYS, *VALUES)}:
        raise UsageError("the networks of the two datasets take different factors. Compare two runs of one sweep.")
    keys = ["workload", *factors, *_KEYS]
    joined = earlier.merge(later, on=keys, suffixes=("_first", "_second"))
    if joined.empty:
        raise UsageError(
            f"no trial in common: the first dataset has {_name_few(earlier['workload'])} on "
            f"{_name_few(earlier['device'])}, the second {_name_few(later['workload'])} on "
            f"{_name_few(later['device'])}. Compare two runs of one sweep."
        )
    trials, unchecked = _compute_changes(joined, keys), list_unchecked(joined)
    incomparable = [*_list_differences(first, second, environment.find_hardware_differences), *list_unlike(joined)]
    others = [*_list_differences(first, second, environment.find_differences), *_list_altered(first, second)]
    lost = earlier[keys].merge(joined[keys], on=keys, how="left", indicator=True)
    lost = lost[lost.pop("_merge") == "left_only"].merge(outcomes[[*keys, "reason"]], on=keys, how="left")
    has_failed = (lost["reason"].fillna("") != "").to_numpy()
    return Comparison(
        metric=metric,
        trials=trials,
        winners=_find_winners(trials[~trials.index.isin(unchecked)], [key for key in keys if key != "compiler"]),
        environments=_compare_environments(first, second),
        unlike=tuple(dict.fromkeys([*incomparable, *others])),
        incomparable=tuple(incomparable),
        missing=len(earlier) + len(later) - 2 * len(joined),
        keys=keys,
        failed=lost[has_failed],
        absent=lost[~has_failed][keys],
        unjudged=list_unjudged(origins, outcomes, keys),
        unchecked=unchecked,
        drift_sd=math.hypot(_find_drift_sd(first), _find_drift_sd(second)),
    )


def _find_drift_sd(data: Data) -> float:
    """The standard deviation that drift adds to the logarithm of a throughput of a run."""
    devices = read_environments(data).values()
    is_hosted = any((device.get("conditions") or {}).get("virtual_machine") for device in devices)
    return HOSTED_APART_SD if is_hosted else APART_SD


def _compute_changes(joined: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    change = joined["value_second"] / joined["value_first"]
    widths = [np.log(joined[f"high_{run}"] / joined[f"low_{run}"]) / 2 for run in ("first", "second")]
    width = np.sqrt(sum(half**2 for half in widths))
    low, high = change * np.exp(-width), change * np.exp(width)
    verdicts = np.where(low > 1, "higher", np.where(high < 1, "lower", "same"))
    names = {f"{end}_{run}": f"{run}_{end}" for run in ("first", "second") for end in ("low", "high")}
    trials = joined.rename(columns={"value_first": "first", "value_second": "second", **names})
    conclusive = joined["conclusive_first"].astype(bool) & joined["conclusive_second"].astype(bool)
    rounds = joined[["rounds_first", "rounds_second"]].min(axis=1)
    columns = {"change": change, "change_low": low, "change_high": high, "conclusive": conclusive, "rounds": rounds}
    trials = trials.assign(**columns, **{"is": verdicts})
    numbers = [f"{column}{end}" for column in ("first", "second", "change") for end in ("", "_low", "_high")]
    changes: pd.DataFrame = trials[[*keys, *numbers, "rounds", "conclusive", "is"]]
    return changes


def _find_winners(trials: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for labels, group in trials.groupby(keys, sort=False, dropna=False):
        values = group.set_index("compiler")
        first, second = str(values["first"].idxmax()), str(values["second"].idxmax())
        led = bool(values["first_low"][first] > values["first_high"][second])
        lost = bool(values["second_low"][second] > values["second_high"][first])
        row = dict(zip(keys, labels if isinstance(labels, tuple) else (labels,), strict=True))
        rows.append({**row, "first": first, "second": second, "another": first != second and led and lost})
    return pd.DataFrame(rows)


def _compare_environments(first: Data, second: Data) -> pd.DataFrame:
    import pandas as pd

    columns: dict[str, dict[str, Any]] = {}
    for run, data in (("first", first), ("second", second)):
        for label, device in read_environments(data).items():
            properties = {key: device.get(key) for key in _DEVICE_KEYS}
            columns[f"{run}: {label}"] = properties | device.get("packages", {})
    frame = pd.DataFrame(columns)
    differ = [len(set(map(str, row))) > 1 for row in frame.itertuples(index=False)]
    return frame.assign(differs=differ)


def _name_few(labels: pd.Series[str]) -> str:
    return ", ".join(labels.unique()[:4])


def _format_interval(row: Mapping[str, Any], name: str) -> str:
    return f"{row[name]:.3g} ({row[f'{name}_low']:.3g} to {row[f'{name}_high']:.3g})"


def _list_differences(first: Data, second: Data, find: Callable[..., list[str]]) -> list[str]:
    """List the differences between the machines of one label, or between the only ones."""
    before, after = read_environments(first), read_environments(second)
    if len(before) == len(after) == 1:
        return find(*before.values(), *after.values())
    shared = [label for label in before if label in after]
    return [f"{label}: {line}" for label in shared for line in find(before[label], after[label])]


def _list_altered(first: Data, second: Data) -> list[str]:
    runs = {"first": first, "second": second}
    return [f"the file of the {run} run was altered" for run, data in runs.items() if data.attrs.get(ALTERED)]
