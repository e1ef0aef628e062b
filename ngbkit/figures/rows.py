"""What a figure draws, as rows: a trial each, with its value, the interval of it, and what became of the trial."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import factor_dims, nodes
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError, UnknownNameError, UsageError
from ngbkit.sweep.records import OPEN
from ngbkit.sweep.trials import BASELINE
from ngbkit.workloads.paper import FAMILIES

if TYPE_CHECKING:
    import pandas as pd

Values = Callable[[xr.Dataset], xr.Dataset]
"""What is drawn of a node: a dataset with ``value``, and ``low`` and ``high`` where there is an interval."""

Select = Mapping[str, Any]
"""By dim, the label or the labels to draw."""


def of_metric(metric: Callable[..., xr.DataArray | xr.Dataset], ci: float | None) -> Values:
    """A metric with its interval; without one where the dataset has no samples that it could come from.

    Parameters
    ----------
    metric
        One of `ngbkit.metrics`, which takes a dataset and `ci`.
    ci
        The probability that an interval is to cover, or None for no interval.
    """

    def found(node: xr.Dataset) -> xr.Dataset:
        sampled = {"latency", "round"} <= set(node.variables)
        known = metric(node, ci=ci if sampled else None)
        if isinstance(known, xr.DataArray):
            return xr.Dataset({"value": known})
        ends = {"ci_low": "low", "ci_high": "high"}
        named = {name: ends.get(str(name), "value") for name in known.data_vars}
        return known.rename(named)

    return found


def of_variable(name: str) -> Values:
    """A variable of the dataset as it is."""

    def found(node: xr.Dataset) -> xr.Dataset:
        if name not in node or not node[name].notnull().any():
            raise MetricError(f"this figure draws {name!r}, and the dataset has none. Take one that was measured.")
        return xr.Dataset({"value": node[name]})

    return found


def rows(data: Data, values: Values, select: Select, *, axes: Collection[str] = ()) -> pd.DataFrame:
    """The trials to draw, in the order of the dataset.

    Parameters
    ----------
    data
        A dataset or a tree. Nodes that lack what the values are relative to are left out, unless all do.
    values
        What is drawn of a node.
    select
        By dim, the label or the labels to draw; they are chosen after the values are computed, so that what those are
        relative to is there.
    axes
        Factors that have an axis of the figure, and no part in the network's name.

    Returns
    -------
    pandas.DataFrame
        ``network`` (the workload with its factors, and the device where there are several), ``workload``, the factors,
        ``device``, ``compiler``, ``batch_size``, ``value``, ``low``, ``high``, ``status``, ``error``,
        ``samples`` (how many), and ``parameters`` where the dataset knows them.

    Raises
    ------
    UnknownNameError
        A dim or a label that the dataset does not have.
    UsageError
        Nothing is left to draw.
    MetricError
        All nodes lack what the values are relative to: the first one's.
    """
    import pandas as pd

    frames: list[pd.DataFrame] = []
    lacking: MetricError | None = None
    for node in nodes(data).values():
        try:
            frames.append(_flat(node, values(node)))
        except MetricError as error:
            lacking = lacking or error
    if lacking is not None and not frames:
        raise lacking
    factors = list(dict.fromkeys(name for node in nodes(data).values() for name in factor_dims(node)))
    together = pd.concat(frames, ignore_index=True)
    frame = _selected(together[together["status"] != ""], select, factors)  # what nobody asked for has no status
    several = frame["device"].nunique() > 1
    inside = [name for name in factors if name not in axes]
    frame.insert(0, "network", networks(frame, inside, several))
    return frame


def networks(frame: pd.DataFrame, factors: Sequence[str], several: bool) -> list[str]:
    """What each row's network is called: the workload, its factors, and the device where there are several."""
    wanted = ["workload", *(name for name in factors if name in frame), *(["device"] if several else [])]
    # A sweep has many trials of few networks.
    known = frame.groupby(wanted, sort=False, dropna=False).ngroup().to_numpy()
    firsts = frame[wanted].iloc[np.unique(known, return_index=True)[1]]
    names = [network(row, factors, several) for row in firsts.to_dict("records")]
    return [names[at] for at in known]


def network(row: Mapping[Any, Any], factors: Sequence[str], several: bool) -> str:
    """What one trial's network is called, from its labels."""
    takes = [f"{name} {row[name]:g}" for name in factors if name in row and row[name] == row[name]]
    return ", ".join([row["workload"], *takes]) + (f" on {row['device']}" if several else "")


def over(factor: str, values: Values, figure: str, example: str) -> Values:
    """The same of nodes that vary a factor; the others lack it.

    Parameters
    ----------
    factor
        What the figure is over.
    values
        What is drawn of a node.
    figure, example
        Its name, and values to sweep, for the error.
    """

    def found(node: xr.Dataset) -> xr.Dataset:
        if factor not in factor_dims(node) or node.sizes[factor] < 2:
            varied = ", ".join(factor_dims(node)) or "no factor"
            raise MetricError(
                f"{figure}() is over {factor!r} and needs at least two values of it; the sweep varies {varied}. "
                f"Add --factor {factor}={example}, for a workload that takes it."
            )
        return values(node)

    return found


def without_baseline(frame: pd.DataFrame, baseline: str = BASELINE) -> pd.DataFrame:
    """The rows of the compilers that are compared with the baseline; its own are 1 by definition."""
    kept = frame[frame["compiler"] != baseline]
    return frame if kept.empty else kept.reset_index(drop=True)


def heard(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The rows without those of compilers that gave no result at all, and a remark that names these.

    A mark for each of their trials in each panel would say nothing more.
    """
    speaks = frame.groupby("compiler", sort=False)["status"].agg(lambda one: bool(one.isin(["ok", *OPEN]).any()))
    silent = speaks.index[~speaks].tolist()
    if not silent or speaks[speaks].empty:
        return frame, []
    why = {name: ", ".join(dict.fromkeys(frame[frame["compiler"] == name]["status"])) for name in silent}
    remark = f"no result in any trial: {', '.join(f'{name} ({reason})' for name, reason in why.items())}"
    return frame[~frame["compiler"].isin(silent)].reset_index(drop=True), [remark]


def family(workload: str) -> str:
    """The family that a network belongs to: the paper's, or the letters that its name begins with."""
    for name, members in FAMILIES.items():
        if workload in members:
            return name
    found = re.match(r"[A-Za-z]+", workload)
    return found[0].lower() if found else workload


def in_families(frame: pd.DataFrame) -> tuple[list[str], int]:
    """The networks by size and then by family, and how many stand in a line.

    Where every family has as many networks, each line is of one size, from the smallest on, and each column a family,
    as in the paper's figure 5; else networks follow each other as they come.
    """
    known = frame.drop_duplicates("network")
    columns: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for place, row in enumerate(known.to_dict("records")):
        size = row.get("parameters", np.nan)
        member = (float(size) if np.isfinite(size) else float(place), str(row["network"]))
        columns.setdefault((row["device"], family(row["workload"])), []).append(member)
    heights = {len(members) for members in columns.values()}
    if len(heights) == 1 and heights != {1} and 1 < len(columns) <= _MOST_COLUMNS:
        lines = zip(*(sorted(members) for members in columns.values()), strict=True)
        return [name for line in lines for _, name in line], len(columns)
    names = known["network"].tolist()
    return names, columns_of(len(names))


def columns_of(count: int) -> int:
    """How many panels stand in a line: lines are about as full as each other."""
    lines = -(-count // _USUAL_COLUMNS)
    return -(-count // lines)


_MOST_COLUMNS, _USUAL_COLUMNS = 6, 5
_LABELS = ("device", "compiler", "batch_size")


def _flat(node: xr.Dataset, found: xr.Dataset) -> pd.DataFrame:
    labels = ["workload", *factor_dims(node), *_LABELS]
    known = found.assign(status=node["status"], error=node["error"], samples=_samples(node))
    known = known.drop_vars([name for name in known.coords if name not in labels])
    if "parameters" in node.coords:
        known = known.assign(parameters=node["parameters"].reset_coords(drop=True))
    # A label that the user selected is left as a scalar: it becomes a dim again, of one.
    wide = known.expand_dims([name for name in labels if name not in known.dims])
    for name in ("low", "high"):
        if name not in wide:
            wide[name] = xr.full_like(wide["value"], np.nan, dtype=float)
    frame = wide.reset_coords(drop=True).to_dataframe().reset_index()
    own = [str(name) for name in found.data_vars if name not in ("value", "low", "high")]
    kept = [*labels, "value", "low", "high", *own, "status", "error", "samples", "parameters"]
    return frame[[name for name in kept if name in frame]]


def _samples(node: xr.Dataset) -> xr.DataArray:
    """How many each trial has; NaN where that was not kept, as for what was published elsewhere."""
    if "latency" not in node:
        return xr.full_like(node["status"], np.nan, dtype=float)
    return node["latency"].notnull().sum("repeat")


def _selected(frame: pd.DataFrame, select: Select, factors: Sequence[str]) -> pd.DataFrame:
    dims = ["workload", *factors, *_LABELS]
    for dim, wanted in select.items():
        if dim not in dims:
            raise UnknownNameError("dim", dim, dims)
        labels = list(dict.fromkeys(frame[dim].tolist()))
        chosen = [wanted] if isinstance(wanted, str) or not isinstance(wanted, Collection) else list(wanted)
        for label in chosen:
            if label not in labels:
                raise UnknownNameError(dim.replace("_", " "), str(label), map(str, labels))
        frame = frame[frame[dim].isin(chosen)]
    if frame.empty:
        asked = ", ".join(f"{dim}={wanted!r}" for dim, wanted in select.items())
        raise UsageError(f"no trial is left to draw with {asked or 'this dataset'}. Leave a selection out.")
    return frame.reset_index(drop=True)
