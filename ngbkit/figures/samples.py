"""The samples of the trials that a figure draws, in long form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import factor_dims, nodes
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError
from ngbkit.figures import lines, rows

if TYPE_CHECKING:
    import pandas as pd

_DIMS = ("workload", "device", "compiler", "batch_size")


def _counted(node: xr.Dataset) -> xr.Dataset:
    """How many samples each trial has, as `ngbkit.figures.rows.Values`.

    Raises
    ------
    MetricError
        The dataset has none at all.
    """
    if "latency" not in node or not node["latency"].notnull().any():
        raise MetricError("this figure draws samples, and the dataset has none. Take the dataset that the run gave.")
    return xr.Dataset({"value": node["latency"].notnull().sum("repeat")})


def panelled(data: Data, select: rows.Select) -> tuple[pd.DataFrame, list[str]]:
    """The trials to draw, with ``panel``, a network at a batch size; and what a reader must know of those left out.

    Raises
    ------
    MetricError, UnknownNameError, UsageError
        As `ngbkit.figures.rows.rows`.
    """
    found, remarks = rows.heard(rows.rows(data, _counted, select))
    several = found["batch_size"].nunique() > 1
    sizes = ", batch " + found["batch_size"].astype(int).astype(str)
    found["panel"] = found["network"] + (sizes if several else "")
    panels = list(dict.fromkeys(found["panel"]))
    if len(panels) > lines.PANELS:
        remarks.append(f"{len(panels) - lines.PANELS} more panels are not drawn, from {panels[lines.PANELS]} on")
    return found[found["panel"].isin(panels[: lines.PANELS])], remarks


def taken(data: Data, trials: pd.DataFrame) -> pd.DataFrame:
    """The samples of `trials`, a row each.

    Returns
    -------
    pandas.DataFrame
        ``trial`` (its label in the index of `trials`), ``panel``, ``compiler``, ``ms``, ``round`` and ``disturbed``, in
        the order in which they were taken.
    """
    import pandas as pd

    frames = []
    known = list(nodes(data).values())
    for key, row in zip(trials.index.tolist(), trials.to_dict("records"), strict=True):
        node = next(one for one in known if _holds(one, row))
        place = {dim: row[dim] for dim in (*_DIMS, *factor_dims(node)) if dim in node.dims}
        trial = node.sel(place)
        values = trial["latency"].values
        there = ~np.isnan(values)
        blank = np.zeros(len(values))
        part = {
            "ms": values[there] * 1e3,
            "round": (trial["round"].values if "round" in trial else np.arange(len(values)))[there],
            "disturbed": (trial["disturbed"].values if "disturbed" in trial else blank)[there] > 0,
        }
        frames.append(pd.DataFrame(part).assign(trial=key, panel=row["panel"], compiler=row["compiler"]))
    return pd.concat(frames, ignore_index=True)


def _holds(node: xr.Dataset, row: Mapping[Any, Any]) -> bool:
    labels = {dim: row[dim] for dim in (*_DIMS, *factor_dims(node)) if dim in row}
    return all(label in np.atleast_1d(node[dim].values) for dim, label in labels.items())
