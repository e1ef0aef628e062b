"""The samples of the trials that a figure draws, in long form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.contention import conclusive, find_uncontended
from ngbkit.dataset.long_form import list_labels, list_trial_dims
from ngbkit.dataset.selection import Select
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError
from ngbkit.figures import lines, rows

if TYPE_CHECKING:
    import pandas as pd


def _count_samples(node: xr.Dataset) -> xr.Dataset:
    """Count the samples of each trial, and mark conclusive and uncontended ones, as `ngbkit.figures.rows.Values`."""
    if "latency" not in node or not node["latency"].notnull().any():
        raise MetricError("this figure draws samples, which this dataset lacks. Use the dataset of the run.")
    count = node["latency"].notnull().sum("repeat")
    return xr.Dataset({"value": count, "conclusive": conclusive(node), "uncontended": find_uncontended(node)})


def build_panels(data: Data, select: Select) -> tuple[pd.DataFrame, list[str]]:
    """The trials to draw, with the column ``panel``, a network at a batch size; and remarks on omitted ones."""
    trials, remarks = rows.drop_failed_compilers(rows.build_rows(data, _count_samples, select))
    trials["panel"] = trials["network"]
    if trials["batch_size"].nunique() > 1:
        trials["panel"] += ", batch " + trials["batch_size"].astype(int).astype(str)
    panels = list(dict.fromkeys(trials["panel"]))
    remarks += lines.describe_omitted(panels)
    return trials[trials["panel"].isin(panels[: lines.PANELS])], remarks


def extract_samples(data: Data, trials: pd.DataFrame) -> pd.DataFrame:
    """The samples of `trials`, one per row, in measured order.

    The columns are ``trial`` (its label in the index of `trials`), ``panel``, ``compiler``, ``ms``, ``round``,
    ``contended``, and ``used``, whether estimates use it.
    """
    import pandas as pd

    frames = []
    for key, row in zip(trials.index.tolist(), trials.to_dict("records"), strict=True):
        node = next(node for node in nodes(data).values() if _contains(node, row))
        trial = node.sel({dim: row[dim] for dim in list_trial_dims(node) if dim in node.dims})
        latency = trial["latency"].values
        present = ~np.isnan(latency)
        columns = {
            "ms": latency * 1e3,
            "round": trial["round"].values if "round" in trial else np.arange(len(latency)),
            "contended": trial["contended"].values > 0 if "contended" in trial else np.zeros(len(latency), dtype=bool),
        }
        samples = pd.DataFrame({name: values[present] for name, values in columns.items()})
        samples["used"] = ~samples["contended"] | (not row["uncontended"])
        frames.append(samples.assign(trial=key, panel=row["panel"], compiler=row["compiler"]))
    return pd.concat(frames, ignore_index=True)


def _contains(node: xr.Dataset, row: Mapping[Any, Any]) -> bool:
    return all(row[dim] in list_labels(node, dim) for dim in list_trial_dims(node) if dim in row)
