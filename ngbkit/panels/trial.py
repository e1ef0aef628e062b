"""The trials of a dataset: their labels, their names, and those that a mark of a figure shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import factor_dims, nodes
from ngbkit.dataset.storage import Data
from ngbkit.figures import rows
from ngbkit.user_text import format_value

DIMS = ("workload", "compiler", "batch_size", "device")


def list_trials(data: Data) -> list[dict[str, Any]]:
    """List every trial of the sweep in the order of the dataset, as its labels by dim."""
    trials: list[dict[str, Any]] = []
    for node in nodes(data).values():
        dims = list_dims(node)
        stacked = _expand(node["status"], dims).stack(trial=dims, create_index=False)
        columns = {name: stacked[name].values.tolist() for name in dims}
        labels = compress(zip(*columns.values(), strict=True), stacked.values != "")
        trials += [dict(zip(columns, row, strict=True)) for row in labels]
    return trials


def list_values(node: xr.Dataset, values: xr.DataArray) -> list[Any]:
    """List values of the trials of a node, in the order of `list_trials`."""
    dims = list_dims(node)
    grid = _expand(values.broadcast_like(node["status"]), dims).transpose(*dims)
    requested = _expand(node["status"], dims).transpose(*dims).values.ravel() != ""
    return list(compress(grid.values.ravel().tolist(), requested))


def list_dims(node: xr.Dataset) -> list[str]:
    """List the dims of the trials of a node, also those of which a selection left one label."""
    return [name for name in (*DIMS, *factor_dims(node)) if name in node.coords]


def to_text(trial: Mapping[str, Any]) -> str:
    """Write a trial as one line: ``resnet18, openvino, batch 8 on cpu``."""
    factors = [f"{key} {format_value(value)}" for key, value in trial.items() if key not in DIMS]
    parts = [str(trial["workload"]), *factors, str(trial["compiler"]), f"batch {trial['batch_size']}"]
    return f"{', '.join(parts)} on {trial['device']}"


def match_row(row: Mapping[str, Any], trials: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    """Find the indices of the trials that a row of `ngbkit.figures.rows` may show: those with all of its labels.

    Without an axis of its own a factor, and perhaps the batch size, is a part of the name of the network. A figure that
    colours by runtime has the label of the compiler as the column.
    """
    row = {**row, "compiler": row["column"]} if row.get("column") and "compiler" in row else row
    for index, trial in enumerate(trials):
        factors = [key for key in trial if key not in (*DIMS, *row)]
        names = [rows.name_network(trial, factors, with_names) for with_names in (False, True)]
        names += [f"{name}, batch {trial['batch_size']}" for name in names]
        same = all(row[key] == value for key, value in trial.items() if key in row)
        if row.get("network") in names and "compiler" in row and same:
            yield index


def select_trial(data: Data, trial: Mapping[str, Any]) -> tuple[xr.Dataset, xr.Dataset]:
    """Select a trial of `list_trials`: the node that has it, and its own variables."""
    node = next(
        node
        for node in nodes(data).values()
        if set(list_dims(node)) == set(trial)
        and all(value in np.atleast_1d(node[key].values) for key, value in trial.items())
    )
    return node, node.sel({key: value for key, value in trial.items() if key in node.dims})


def _expand(values: xr.DataArray, dims: Sequence[str]) -> xr.DataArray:
    return values.expand_dims([name for name in dims if name not in values.dims])
