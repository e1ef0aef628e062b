"""Predictions in a dataset, in variables of their own beside the measurements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ngbkit.dataset import contention
from ngbkit.dataset.assembly import describe, factor_dims, nodes
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError
from ngbkit.metrics import arrays
from ngbkit.sweep.trials import Trial
from ngbkit.workloads.base import FactorValue

if TYPE_CHECKING:
    import pandas as pd

PREDICTED = "predicted"
"""The status of a trial that was predicted and not measured, and the variable with its predicted latency."""

VARIABLES = {
    PREDICTED: ("s", "predicted latency of one inference of the whole batch", "NaN where it was measured"),
    "predicted_low": ("s", "lower end of the 95 % interval of that prediction", ""),
    "predicted_high": ("s", "upper end of the 95 % interval of that prediction", ""),
}

_ENDS = ("low", "high")

Prediction = tuple[float, float, float]
"""Seconds, and both ends of their interval."""

Factors = tuple[tuple[str, FactorValue], ...]

Key = tuple[str, Factors, str, str, int]
"""The labels of a trial in a dataset: workload, factors, device, compiler, batch size."""


def build_key(trial: Trial) -> Key:
    """Return the labels of a trial in a dataset."""
    return (trial.workload, tuple(sorted(trial.factors)), trial.device, trial.compiler, trial.batch_size)


def fill(data: Data, predictions: Mapping[Key, Prediction]) -> Data:
    """The dataset with predictions for trials that are ``pending``, whose status becomes ``predicted``.

    Parameters
    ----------
    data
        The dataset of a run.
    predictions
        Predictions by the `build_key` of each trial.

    Returns
    -------
    xarray.Dataset or xarray.DataTree
        With the variables ``predicted``, ``predicted_low`` and ``predicted_high`` (seconds), NaN where there is no
        prediction. ``latency`` and all other measurements are unchanged: no metric uses a prediction.
    """
    filled = {path: _fill_node(node, predictions) for path, node in nodes(data).items()}
    if isinstance(data, xr.Dataset):
        return filled["/"]
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=data.attrs), **filled})


def best(data: Data) -> pd.DataFrame:
    """The best compiler of each group, by measured and otherwise by predicted latency.

    Parameters
    ----------
    data
        The result of `ngbkit.Sweep.run` with a budget, or of `ngbkit.Sweep.estimate`; or any dataset.

    Returns
    -------
    pandas.DataFrame
        A row per workload, factors, device and batch size: ``compiler``, its ``latency`` (s), whether that was
        ``measured``; ``lead``, the latency of the second best, relative to it; and ``conclusive``, whether enough
        rounds of all that were measured were uncontended: without other work another might be the best. Groups without
        results have no row.
    """
    import pandas as pd

    return pd.DataFrame([{name: row[name] for name in row if name not in _ENDS} for row in list_best(data)])


def list_best(data: Data) -> list[dict[str, Any]]:
    """List the rows of `best`, each with the ends of the interval of a predicted latency: ``low`` and ``high`` (s)."""
    return [row for node in nodes(data).values() for row in _list_best(node)]


def _list_best(node: xr.Dataset) -> list[dict[str, Any]]:
    latency = contention.select_samples(node)["latency"]
    measured = xr.apply_ufunc(arrays.median, latency, input_core_dims=[["repeat"]])
    predicted = node[PREDICTED] if PREDICTED in node else xr.full_like(measured, np.nan)
    seconds = measured.fillna(predicted)
    if "compiler" not in seconds.dims:
        raise MetricError("this dataset has no dimension 'compiler'; select by a list to keep it: ['openvino'].")
    dims = ["workload", *factor_dims(node), "device", "batch_size"]
    seconds = seconds.expand_dims([dim for dim in dims if dim not in seconds.dims]).transpose(*dims, "compiler")
    is_measured = measured.broadcast_like(seconds).transpose(*dims, "compiler").notnull().values
    is_conclusive = contention.conclusive(node).broadcast_like(seconds).transpose(*dims, "compiler").values
    rows = []
    for position in np.ndindex(*seconds.shape[:-1]):
        values = seconds.values[position]
        ranking = [column for column in np.argsort(values) if np.isfinite(values[column])]
        if ranking:
            fastest = ranking[0]
            labels = {dim: seconds[dim].values[index] for dim, index in zip(dims, position, strict=True)}
            ends = [_select_end(node, f"{PREDICTED}_{end}", labels, fastest) for end in _ENDS]
            lead = float(values[ranking[1]] / values[fastest]) if len(ranking) > 1 else np.nan
            rows.append(
                {
                    **labels,
                    **{"compiler": seconds["compiler"].values[fastest], "latency": float(values[fastest])},
                    **dict(zip(_ENDS, ends, strict=True)),
                    **{"measured": bool(is_measured[position][fastest]), "lead": lead},
                    "conclusive": bool(is_conclusive[position].all()),
                }
            )
    return rows


def _select_end(node: xr.Dataset, name: str, labels: Mapping[str, Any], column: int) -> float:
    """Select an end of the interval of a prediction; NaN if nothing was predicted."""
    if name not in node:
        return float("nan")
    where = {dim: label for dim, label in labels.items() if dim in node[name].dims}
    return float(node[name].sel(where).isel(compiler=column).item())


def list_keys(node: xr.Dataset) -> Iterator[tuple[tuple[int, ...], Key]]:
    """List the trials of a grid: the position in ``status`` and the `build_key` of each."""
    status = node["status"]
    factors = sorted(factor_dims(node))
    labels = {dim: status[dim].values.tolist() for dim in map(str, status.dims)}
    for position in np.ndindex(*status.shape):
        coords = {dim: labels[dim][index] for dim, index in zip(labels, position, strict=True)}
        own_factors = tuple((name, coords[name]) for name in factors)
        yield (
            position,
            (coords["workload"], own_factors, coords["device"], coords["compiler"], coords["batch_size"]),
        )


def _fill_node(node: xr.Dataset, predictions: Mapping[Key, Prediction]) -> xr.Dataset:
    status = node["status"]
    values = np.full((*status.shape, len(VARIABLES)), np.nan)
    status_values = status.values.copy()
    for position, key in list_keys(node):
        if status_values[position] == "pending" and key in predictions:
            values[position] = predictions[key]
            status_values[position] = PREDICTED
    arrays_ = np.moveaxis(values, -1, 0)
    variables = {
        name: (status.dims, array, describe(*VARIABLES[name])) for name, array in zip(VARIABLES, arrays_, strict=True)
    }
    return node.assign({**variables, "status": (status.dims, status_values, status.attrs)})
