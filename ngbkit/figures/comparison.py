"""Compares two runs of one sweep, on two machines or two days."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import to_frame
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError, UnknownNameError, UsageError
from ngbkit.hardware import environment
from ngbkit.metrics import labelled
from ngbkit.sweep.json_values import to_json_value

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

LEVEL = 0.95
"""The level of the intervals that a change must exceed."""

METRICS: Mapping[str, Callable[..., Any]] = {
    "speedup": labelled.speedup,
    "throughput": labelled.throughput,
    "rtr": labelled.rtr,
    "ase": labelled.ase,
    "bsr": labelled.bsr,
}
"""The metrics to compare. Machines differ in throughput; a result reproduces if its speed-ups do."""

_KEYS = ("device", "compiler", "batch_size")
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
        or ``"same"`` if the intervals cannot distinguish them; and ``settled``, false where either run had too few
        undisturbed rounds.
    winners
        One row per group: the fastest compiler of each run, and ``another``, true if the first run's winner surely lost
        its lead.
    environments
        One row per property, one column per run and device.
    unlike
        The differences between the two machines, in sentences, if each run has one device.
    missing
        The number of trials that only one run measured.
    """

    metric: str
    trials: pd.DataFrame
    winners: pd.DataFrame
    environments: pd.DataFrame
    unlike: tuple[str, ...]
    missing: int

    @property
    def judged(self) -> pd.DataFrame:
        """The trials that can be judged: settled in both runs, with an interval in each."""
        trials = self._bounded
        return trials[trials["settled"].astype(bool)]

    @property
    def unsettled(self) -> int:
        """The number of trials with intervals that are not settled in either run."""
        return len(self._bounded) - len(self.judged)

    def on_device(self, label: str) -> Comparison:
        """The comparison of the trials on one device, by its label in the first run."""
        trials, winners = (frame[frame["device"] == label] for frame in (self.trials, self.winners))
        return replace(self, trials=trials, winners=winners)

    @property
    def share(self) -> str:
        """How many settled values differ beyond their intervals, beside how many chance alone makes differ."""
        judged = self.judged
        changed = int((judged["is"] != "same").sum())
        line = (
            f"{changed} of {len(judged)} settled values of {self.metric} differ beyond their {LEVEL:.0%} intervals; "
            f"chance alone makes about {(1 - LEVEL) * len(judged):.2g} differ"
        )
        return f"{line}; {self.unsettled} more are not settled" if self.unsettled else line

    @property
    def _bounded(self) -> pd.DataFrame:
        """The trials with intervals: what is compared with itself, as the baseline's speed-up, cannot differ."""
        trials = self.trials
        has_ends = [(trials[f"{run}_low"] < trials[f"{run}_high"]).to_numpy() for run in ("first", "second")]
        return trials[has_ends[0] & has_ends[1]]

    def plot(self) -> alt.LayerChart:
        """Draw both runs: see `ngbkit.figures.charts.changes`."""
        from ngbkit.figures.charts.changes import changes

        return changes(self)

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
        labels = [name for name in names if not name.startswith(("first", "second", "change"))][:-2]
        return [
            {
                **{name: f"{row[name]:g}" if isinstance(row[name], float) else str(row[name]) for name in labels},
                **{column: _format_interval(row, column) for column in ("first", "second", "change")},
                "is": row["is"],
            }
            for row in (dict(zip(names, values, strict=True)) for values in trials.itertuples(index=False))
        ]

    def __str__(self) -> str:
        another = int(self.winners["another"].sum())
        summary = f"{self.share}; the best compiler surely changed in {another} of {len(self.winners)} groups"
        return f"{summary}; {self.missing} trials were measured in only one of the two" if self.missing else summary


def compare(first: Data, second: Data, metric: str = "speedup") -> Comparison:
    """Compare two runs of the same sweep, and find the changes beyond uncertainty.

    Parameters
    ----------
    first, second
        The datasets of two runs. Devices are matched by their labels; if each run has one device, these are matched
        whatever their labels.
    metric
        One of `METRICS`.

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
    if metric not in METRICS:
        raise UnknownNameError("metric", metric, METRICS)
    earlier, later = _compute_values(first, metric), _compute_values(second, metric)
    labels = [earlier["device"].unique().tolist(), later["device"].unique().tolist()]
    if all(len(devices) == 1 for devices in labels):
        later = later.assign(device=labels[0][0])
    factors = [name for name in map(str, earlier) if name not in ("workload", *_KEYS, *_VALUES)]
    if set(factors) != {name for name in later if name not in ("workload", *_KEYS, *_VALUES)}:
        raise UsageError("the networks of the two datasets take different factors. Compare two runs of one sweep.")
    keys = ["workload", *factors, *_KEYS]
    joined = earlier.merge(later, on=keys, suffixes=("_first", "_second"))
    if joined.empty:
        raise UsageError(
            f"no trial in common: the first dataset has {_name_few(earlier['workload'])} on "
            f"{_name_few(earlier['device'])}, the second {_name_few(later['workload'])} on "
            f"{_name_few(later['device'])}. Compare two runs of one sweep."
        )
    trials = _compute_changes(joined, keys)
    return Comparison(
        metric=metric,
        trials=trials,
        winners=_find_winners(trials, [key for key in keys if key != "compiler"]),
        environments=_compare_environments(first, second),
        unlike=_describe_differences(first, second),
        missing=len(earlier) + len(later) - 2 * len(joined),
    )


_VALUES = ("value", "low", "high", "settled")


def _compute_values(data: Data, metric: str) -> pd.DataFrame:
    """The metric of every trial that has one, with its interval."""
    import pandas as pd

    frames, problem = [], None
    for node in nodes(data).values():
        arguments = {} if metric == "throughput" else {"unlike": "mask"}
        try:
            result = METRICS[metric](node, ci=LEVEL, **arguments)
        except MetricError as error:
            problem = error
            continue
        columns = {"value": metric, "low": "ci_low", "high": "ci_high", "settled": "settled"}
        frame = to_frame(xr.Dataset({column: result[name] for column, name in columns.items()}))
        frames.append(frame[np.isfinite(frame["value"])])
    if not frames:
        raise problem or UsageError("this dataset has no trial. Use the dataset of a run.")
    values: pd.DataFrame = pd.concat(frames, ignore_index=True)
    return values


def _compute_changes(joined: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    change = joined["value_second"] / joined["value_first"]
    widths = [np.log(joined[f"high_{run}"] / joined[f"low_{run}"]) / 2 for run in ("first", "second")]
    width = np.sqrt(sum(half**2 for half in widths))
    low, high = change * np.exp(-width), change * np.exp(width)
    verdicts = np.where(low > 1, "higher", np.where(high < 1, "lower", "same"))
    names = {f"{end}_{run}": f"{run}_{end}" for run in ("first", "second") for end in ("low", "high")}
    trials = joined.rename(columns={"value_first": "first", "value_second": "second", **names})
    settled = joined["settled_first"].astype(bool) & joined["settled_second"].astype(bool)
    trials = trials.assign(change=change, change_low=low, change_high=high, settled=settled, **{"is": verdicts})
    numbers = [f"{column}{end}" for column in ("first", "second", "change") for end in ("", "_low", "_high")]
    changes: pd.DataFrame = trials[[*keys, *numbers, "settled", "is"]]
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
        for label, device in json.loads(data.attrs.get("environments") or "{}").items():
            properties = {key: device.get(key) for key in _DEVICE_KEYS}
            columns[f"{run}: {label}"] = properties | device.get("packages", {})
    frame = pd.DataFrame(columns)
    differ = [len(set(map(str, row))) > 1 for row in frame.itertuples(index=False)]
    return frame.assign(differs=differ)


def _name_few(labels: pd.Series[str]) -> str:
    return ", ".join(labels.unique()[:4])


def _format_interval(row: Mapping[str, Any], name: str) -> str:
    return f"{row[name]:.3g} ({row[f'{name}_low']:.3g} to {row[f'{name}_high']:.3g})"


def _describe_differences(first: Data, second: Data) -> tuple[str, ...]:
    devices = [list(json.loads(data.attrs.get("environments") or "{}").values()) for data in (first, second)]
    if any(len(environments) != 1 for environments in devices):
        return ()
    return tuple(environment.find_differences(devices[0][0], devices[1][0]))
