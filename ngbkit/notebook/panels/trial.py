"""The details of one trial: its results, the spread of its samples, its environment, or why it failed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np
import xarray as xr

from ngbkit import metrics
from ngbkit.dataset.assembly import factor_dims, nodes
from ngbkit.dataset.contention import find_unchecked
from ngbkit.dataset.environments import read_environments
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import MetricError
from ngbkit.figures import rows
from ngbkit.metrics.estimate import INCONCLUSIVE, Estimate
from ngbkit.metrics.unchecked import explain_inconclusive
from ngbkit.sweep.records import NOT_CHECKED
from ngbkit.sweep.variables import VARIABLES
from ngbkit.user_text import format_value

DIMS = ("workload", "compiler", "batch_size", "device")
# The facts of an environment that distinguish two machines.
_ENVIRONMENT = ("chip", "cores_usable", "memory_bytes", "system", "governor", "python", "ngbkit_commit")
_NUMBERS = ("compile_time", "compile_time_warm", "first_call_time", "cpu_percent", "peak_memory", "rmse_ratio")


def list_trials(data: Data) -> list[dict[str, Any]]:
    """List every trial of the sweep in the order of the dataset, as its labels by dim."""
    trials: list[dict[str, Any]] = []
    for node in nodes(data).values():
        dims = [name for name in (*DIMS, *factor_dims(node)) if name in node.coords]
        grid = node["status"].expand_dims([name for name in dims if name not in node["status"].dims])
        stacked = grid.stack(trial=dims, create_index=False)
        columns = {name: stacked[name].values.tolist() for name in dims}
        rows = compress(zip(*columns.values(), strict=True), stacked.values != "")
        trials += [dict(zip(columns, row, strict=True)) for row in rows]
    return trials


def to_text(trial: Mapping[str, Any]) -> str:
    """Write a trial as one line: ``resnet18, openvino, batch 8 on cpu``."""
    factors = [f"{key} {format_value(value)}" for key, value in trial.items() if key not in DIMS]
    parts = [trial["workload"], *factors, trial["compiler"], f"batch {trial['batch_size']}"]
    return f"{', '.join(parts)} on {trial['device']}"


def match_row(row: Mapping[str, Any], trials: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    """Find the indices of the trials that a row of `ngbkit.figures.rows` may show: those with all of its labels.

    Without an axis of its own a factor, and perhaps the batch size, is a part of the name of the network.
    """
    for index, trial in enumerate(trials):
        factors = [key for key in trial if key not in (*DIMS, *row)]
        names = [rows.name_network(trial, factors, with_names) for with_names in (False, True)]
        names += [f"{name}, batch {trial['batch_size']}" for name in names]
        same = all(row[key] == value for key, value in trial.items() if key in row)
        if row.get("network") in names and "compiler" in row and same:
            yield index


def describe(data: Data, trial: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a trial of `list_trials`, as a row for `ngbkit.tabular.to_html_sheets`."""
    node, results = next(
        (node, results) for node in nodes(data).values() if (results := _select(node, trial)) is not None
    )
    row: dict[str, Any] = {"trial": to_text(trial), "status": str(results["status"].item())}
    if results["error"].item():
        is_unchecked = row["status"] == NOT_CHECKED
        row["not checked" if is_unchecked else "error"] = str(results["error"].item())
    row |= _describe_samples(results) | _describe_estimates(node, trial)
    for name in _NUMBERS:
        if name in results and np.isfinite(results[name].item()):
            row[name.replace("_", " ")] = _format_number(results[name].item(), VARIABLES[name].unit_symbol)
    for name in ("contract", "facts"):
        if name in results and results[name].item():
            facts = json.loads(results[name].item())
            row[name] = ", ".join(
                f"{key} {_format_fact(value)}" for key, value in facts.items() if value not in ("", None)
            )
    facts = read_environments(results).get(str(trial["device"]), {})
    environment = {key: facts[key] for key in _ENVIRONMENT if facts.get(key)}
    if environment:
        row["environment"] = ", ".join(f"{key} {value}" for key, value in environment.items())
    return row


def _select(node: xr.Dataset, trial: Mapping[str, Any]) -> xr.Dataset | None:
    dims = {name for name in (*DIMS, *factor_dims(node)) if name in node.coords}
    if dims != set(trial) or any(value not in np.atleast_1d(node[key].values) for key, value in trial.items()):
        return None
    return node.sel({key: value for key, value in trial.items() if key in node.dims})


def _format_number(value: float, symbol: str) -> str:
    return f"{value / 1e6:.4g} MB" if symbol == "B" else f"{value:.4g} {symbol}".rstrip()


def _format_fact(value: Any) -> str:
    """Write a fact with at most four digits a number."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_format_fact(item)}" for key, item in value.items())
    return str(value)


def _describe_samples(results: xr.Dataset) -> dict[str, Any]:
    if "latency" not in results or not results["latency"].notnull().any():
        return {}
    values = results["latency"].values * 1e3
    values = values[~np.isnan(values)]
    low, median, high = np.quantile(values, [0.05, 0.5, 0.95])
    contended = int((results["contended"].values > 0).sum()) if "contended" in results else 0
    marked = f", {contended} of them contended" if contended else ""
    return {"samples": f"{len(values)}{marked}, median {median:.4g} ms, 90 % between {low:.4g} and {high:.4g} ms"}


def _describe_estimates(node: xr.Dataset, trial: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the throughput and the speed-up of a trial with their intervals, as far as it has them."""
    group = node.sel({key: value for key, value in trial.items() if key in node.dims and key != "compiler"})
    described = {}
    for name, metric, units in (("throughput", metrics.throughput, " samples/s"), ("speedup", metrics.speedup, "")):
        try:
            values = metric(group, ci=LEVEL)
        except MetricError:
            continue
        column = values.sel(compiler=trial["compiler"]) if "compiler" in values.dims else values
        estimate = Estimate(*(column[key].item() for key in (name, "ci_low", "ci_high", "conclusive")))
        if np.isfinite(estimate):
            described[name.replace("speedup", "speed-up")] = f"{estimate}{units}"
            if not estimate.conclusive:
                described["conclusive"] = f"no ({INCONCLUSIVE}): {_explain_inconclusive(group, trial)}"
    return described


def _explain_inconclusive(group: xr.Dataset, trial: Mapping[str, Any]) -> str:
    """Explain why the estimates of a trial are not conclusive."""
    column = group.sel(compiler=trial["compiler"]) if "compiler" in group.dims else group
    return "its outputs were not checked" if bool(find_unchecked(column).any()) else explain_inconclusive(group)
