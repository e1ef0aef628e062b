"""All there is to know of one trial: what it gave, how its samples are spread, where it ran, or why it failed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import factor_dims, nodes
from ngbkit.dataset.storage import Data
from ngbkit.figures import rows
from ngbkit.metrics import ratios

DIMS = ("workload", "compiler", "batch_size", "device")
# Of the environment, what tells two machines apart.
_ENVIRONMENT = ("chip", "cores_usable", "memory_bytes", "system", "governor", "python", "ngbkit_commit")
_NUMBERS = ("compile_time", "compile_time_warm", "first_call_time", "cpu_percent", "peak_memory", "rmse_ratio")


def labels(data: Data) -> list[dict[str, Any]]:
    """The labels of every trial that was asked for, in the order of the dataset: the dims of its node, by name."""
    found: list[dict[str, Any]] = []
    for node in nodes(data).values():
        dims = [name for name in (*DIMS, *factor_dims(node)) if name in node.coords]
        grid = node["status"].expand_dims([name for name in dims if name not in node["status"].dims])
        stacked = grid.stack(trial=dims, create_index=False)
        columns = {name: stacked[name].values.tolist() for name in dims}
        lines = compress(zip(*columns.values(), strict=True), stacked.values != "")
        found += [dict(zip(columns, line, strict=True)) for line in lines]
    return found


def name(trial: Mapping[str, Any]) -> str:
    """A trial in a line: ``resnet18, openvino, batch 8 on cpu``."""
    factors = [f"{key} {value:g}" for key, value in trial.items() if key not in DIMS]
    parts = [trial["workload"], *factors, trial["compiler"], f"batch {trial['batch_size']}"]
    return f"{', '.join(parts)} on {trial['device']}"


def drawn_from(row: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    """The places of the trials that a row of a figure may be of: those with every label that it has.

    Parameters
    ----------
    row
        Of `ngbkit.figures.rows`: a factor that has an axis stands for itself, the others in the name of the network,
        and so may the batch size.
    found
        Of `labels`.
    """
    for at, trial in enumerate(found):
        factors = [key for key in trial if key not in (*DIMS, *row)]
        names = [rows.network(trial, factors, several) for several in (False, True)]
        names += [f"{name}, batch {trial['batch_size']}" for name in names]
        same = all(row[key] == value for key, value in trial.items() if key in row)
        if row.get("network") in names and "compiler" in row and same:
            yield at


def describe(data: Data, trial: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of a trial, as a row for `ngbkit.commands.listing.to_html_sheets`.

    Parameters
    ----------
    data
        A dataset or a tree.
    trial
        One of `labels`.
    """
    own = next(found for node in nodes(data).values() if (found := _select(node, trial)) is not None)
    row: dict[str, Any] = {"trial": name(trial), "status": str(own["status"].item())}
    if own["error"].item():
        row["error"] = str(own["error"].item())
    row |= _samples(own)
    for variable in _NUMBERS:
        if variable in own and np.isfinite(own[variable].item()):
            row[variable.replace("_", " ")] = _number(own[variable].item(), str(own[variable].attrs.get("units", "")))
    for variable in ("contract", "facts"):
        if variable in own and own[variable].item():
            told = json.loads(own[variable].item())
            row[variable] = ", ".join(
                f"{key} {_short(value)}" for key, value in told.items() if value not in ("", None)
            )
    known = ratios.environments(own).get(str(trial["device"]), {})
    environment = {key: known[key] for key in _ENVIRONMENT if known.get(key)}
    if environment:
        row["environment"] = ", ".join(f"{key} {value}" for key, value in environment.items())
    return row


def _select(node: xr.Dataset, trial: Mapping[str, Any]) -> xr.Dataset | None:
    own = {key for key in (*DIMS, *factor_dims(node)) if key in node.coords}
    if own != set(trial) or any(value not in np.atleast_1d(node[key].values) for key, value in trial.items()):
        return None
    return node.sel({key: value for key, value in trial.items() if key in node.dims})


def _number(value: float, units: str) -> str:
    if units == "B":
        return f"{value / 1e6:.4g} MB"
    return f"{value:.4g} {units}".removesuffix(" 1")


def _short(value: Any) -> str:
    """A fact as people read it: nobody reads the tenth digit of a duration."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_short(one)}" for key, one in value.items())
    return str(value)


def _samples(own: xr.Dataset) -> dict[str, Any]:
    if "latency" not in own or not own["latency"].notnull().any():
        return {}
    values = own["latency"].values * 1e3
    values = values[~np.isnan(values)]
    low, median, high = np.quantile(values, [0.05, 0.5, 0.95])
    told = f"{len(values)}, median {median:.4g} ms, nine in ten from {low:.4g} to {high:.4g} ms"
    return {"samples": told, "throughput": f"{own['throughput'].item():.4g} samples/s"}
