"""Whether two runs of one sweep say the same: on another machine, or on another day."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import factor_dims, nodes
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError, UnknownNameError, UsageError
from ngbkit.hardware import environment
from ngbkit.metrics import labelled
from ngbkit.sweep.to_json import plain

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

LEVEL = 0.95
"""Of the intervals that a change has to be beyond."""

METRICS: Mapping[str, Callable[..., Any]] = {
    "speedup": labelled.speedup,
    "throughput": labelled.throughput,
    "rtr": labelled.rtr,
    "ase": labelled.ase,
    "bsr": labelled.bsr,
}
"""What can be compared. Machines differ in throughput; a finding is of speed-ups, and holds where these do."""

_KEYS = ("device", "compiler", "batch_size")
_ABOUT = ("chip", "cores_usable", "memory_bytes", "system", "python", "ngbkit_commit")


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Two runs of one sweep beside each other.

    Parameters
    ----------
    metric
        What was compared.
    trials
        A row a trial that both have measured: its labels, those of the first run; ``first`` and ``second`` with the
        ends of their intervals, ``change`` (the second over the first) with its own, and ``is``: ``"higher"``,
        ``"lower"`` or ``"same"``, which is all that the intervals cannot tell apart.
    winners
        A row a group: the compiler that is ahead in each run, and whether that is ``another``: it is where the first
        run's winner surely lost its lead.
    environments
        A row a property, a column a run and device.
    unlike
        In what the two machines are different ones, in sentences, where each run has one device.
    missing
        How many trials one run has measured and the other has not.
    """

    metric: str
    trials: pd.DataFrame
    winners: pd.DataFrame
    environments: pd.DataFrame
    unlike: tuple[str, ...]
    missing: int

    def plot(self) -> alt.LayerChart:
        """Both runs as a figure: see `ngbkit.figures.changes`."""
        from ngbkit.figures.charts.changes import changes

        return changes(self)

    def to_json(self) -> dict[str, Any]:
        """All but the environments, as plain JSON."""
        return {
            "metric": self.metric,
            "trials": plain(self.trials.to_dict("records")),
            "winners": plain(self.winners.to_dict("records")),
            "unlike": list(self.unlike),
            "missing": self.missing,
        }

    @staticmethod
    def rows(trials: pd.DataFrame) -> list[dict[str, str]]:
        """Trials as people read them."""
        names = list(map(str, trials.columns))
        labels = [name for name in names if not name.startswith(("first", "second", "change"))][:-1]
        return [
            {
                **{name: f"{row[name]:g}" if isinstance(row[name], float) else str(row[name]) for name in labels},
                **{one: _spanned(row, one) for one in ("first", "second", "change")},
                "is": row["is"],
            }
            for row in (dict(zip(names, values, strict=True)) for values in trials.itertuples(index=False))
        ]

    def __str__(self) -> str:
        changed, another = int((self.trials["is"] != "same").sum()), int(self.winners["another"].sum())
        said = (
            f"{changed} of {len(self.trials)} values of {self.metric} differ beyond their {LEVEL:.0%} intervals; the "
            f"best compiler is surely another in {another} of {len(self.winners)} groups"
        )
        return f"{said}; {self.missing} trials are measured in one of the two only" if self.missing else said


def compare(first: Data, second: Data, metric: str = "speedup") -> Comparison:
    """The same sweep, measured twice: what changed beyond uncertainty.

    Parameters
    ----------
    first, second
        Of two runs. Devices are matched by their labels; where each run has one device, these are, whatever they are
        called.
    metric
        One of `METRICS`.

    Raises
    ------
    UnknownNameError
        No such metric.
    UsageError
        The two have no trial in common.
    MetricError
        A dataset lacks what the metric is relative to.

    Notes
    -----
    A change is a ratio of two independent estimates; on a logarithmic scale the half widths of their intervals add up
    as squares do. Of many trials one in twenty changes by chance alone.
    """
    if metric not in METRICS:
        raise UnknownNameError("metric", metric, METRICS)
    before, after = _values(first, metric), _values(second, metric)
    labels = [before["device"].unique().tolist(), after["device"].unique().tolist()]
    if all(len(each) == 1 for each in labels):
        after = after.assign(device=labels[0][0])
    factors = [name for name in map(str, before) if name not in ("workload", *_KEYS, *_ENDS)]
    if set(factors) != {name for name in after if name not in ("workload", *_KEYS, *_ENDS)}:
        raise UsageError("the networks of these two take other factors; compare runs of one sweep.")
    keys = ["workload", *factors, *_KEYS]
    joined = before.merge(after, on=keys, suffixes=("_first", "_second"))
    if joined.empty:
        raise UsageError(
            f"these two have no trial in common: the one is of {_few(before['workload'])} on "
            f"{_few(before['device'])}, the other of {_few(after['workload'])} on {_few(after['device'])}."
        )
    trials = _changed(joined, keys)
    return Comparison(
        metric=metric,
        trials=trials,
        winners=_winners(trials, [key for key in keys if key != "compiler"]),
        environments=_environments(first, second),
        unlike=_unlike(first, second),
        missing=len(before) + len(after) - 2 * len(joined),
    )


_ENDS = ("value", "low", "high")


def _values(data: Data, metric: str) -> pd.DataFrame:
    """The metric of every trial that has one, with its interval."""
    import pandas as pd

    frames, problem = [], None
    for node in nodes(data).values():
        arguments = {} if metric == "throughput" else {"unlike": "mask"}
        try:
            found = METRICS[metric](node, ci=LEVEL, **arguments)
        except MetricError as error:
            problem = error
            continue
        known = xr.Dataset({"value": found[metric], "low": found["ci_low"], "high": found["ci_high"]})
        labels = ["workload", *factor_dims(node), *_KEYS]
        scalars = [name for name in labels if name in known.coords and name not in known.dims]
        frame = known.expand_dims(scalars).reset_coords(drop=True).to_dataframe().reset_index()
        frames.append(frame[np.isfinite(frame["value"])][[*labels, *_ENDS]])
    if not frames:
        raise problem or UsageError("this dataset holds no trial.")
    whole: pd.DataFrame = pd.concat(frames, ignore_index=True)
    return whole


def _changed(joined: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    change = joined["value_second"] / joined["value_first"]
    spans = [np.log(joined[f"high_{one}"] / joined[f"low_{one}"]) / 2 for one in ("first", "second")]
    half = np.sqrt(sum(span**2 for span in spans))
    low, high = change * np.exp(-half), change * np.exp(half)
    words = np.where(low > 1, "higher", np.where(high < 1, "lower", "same"))
    renamed = {f"{end}_{one}": f"{one}_{end}" for one in ("first", "second") for end in ("low", "high")}
    found = joined.rename(columns={"value_first": "first", "value_second": "second", **renamed})
    found = found.assign(change=change, change_low=low, change_high=high, **{"is": words})
    numbers = [f"{one}{end}" for one in ("first", "second", "change") for end in ("", "_low", "_high")]
    told: pd.DataFrame = found[[*keys, *numbers, "is"]]
    return told


def _winners(trials: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for labels, group in trials.groupby(keys, sort=False, dropna=False):
        own = group.set_index("compiler")
        one, other = str(own["first"].idxmax()), str(own["second"].idxmax())
        led = bool(own["first_low"][one] > own["first_high"][other])
        lost = bool(own["second_low"][other] > own["second_high"][one])
        row = dict(zip(keys, labels if isinstance(labels, tuple) else (labels,), strict=True))
        rows.append({**row, "first": one, "second": other, "another": one != other and led and lost})
    return pd.DataFrame(rows)


def _environments(first: Data, second: Data) -> pd.DataFrame:
    import pandas as pd

    columns: dict[str, dict[str, Any]] = {}
    for said, data in (("first", first), ("second", second)):
        for label, about in json.loads(data.attrs.get("environments") or "{}").items():
            packages = about.get("packages", {})
            columns[f"{said}: {label}"] = {name: about.get(name) for name in _ABOUT} | packages
    frame = pd.DataFrame(columns)
    differ = [len(set(map(str, row))) > 1 for row in frame.itertuples(index=False)]
    return frame.assign(differs=differ)


def _few(labels: pd.Series[str]) -> str:
    return ", ".join(labels.unique()[:4])


def _spanned(row: Mapping[str, Any], name: str) -> str:
    return f"{row[name]:.3g} ({row[f'{name}_low']:.3g} to {row[f'{name}_high']:.3g})"


def _unlike(first: Data, second: Data) -> tuple[str, ...]:
    known = [json.loads(data.attrs.get("environments") or "{}") for data in (first, second)]
    if any(len(each) != 1 for each in known):
        return ()
    (one,), (other,) = (each.values() for each in known)
    return tuple(environment.unlike(one, other))
