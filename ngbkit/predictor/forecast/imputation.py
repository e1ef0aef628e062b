"""Predictions in a dataset, beside what was measured and never in its place."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import describe, factor_dims, nodes
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError
from ngbkit.metrics import arrays
from ngbkit.sweep.trials import Trial

if TYPE_CHECKING:
    import pandas as pd

PREDICTED = "predicted"
"""The status of a trial that was not measured, and the variable that holds what it is likely to take."""

VARIABLES = {
    PREDICTED: ("s", "predicted latency of one inference of the whole batch", "NaN where it was measured"),
    "predicted_low": ("s", "lower end of the 95 % interval of that prediction", ""),
    "predicted_high": ("s", "upper end of the 95 % interval of that prediction", ""),
}

Prediction = tuple[float, float, float]
"""Seconds, and both ends of an interval of these."""

Key = tuple[Hashable, ...]


def key_of(trial: Trial) -> Key:
    """What a dataset's labels say of a trial."""
    return (trial.workload, tuple(sorted(trial.factors)), trial.device, trial.compiler, trial.batch_size)


def fill(data: Data, predictions: Mapping[Key, Prediction]) -> Data:
    """The dataset with predictions for trials that are ``pending``, whose status becomes ``predicted``.

    Parameters
    ----------
    data
        Of a run.
    predictions
        By `key_of` of the trials.

    Returns
    -------
    xarray.Dataset or xarray.DataTree
        With the variables ``predicted``, ``predicted_low`` and ``predicted_high`` (seconds), NaN where there is no
        prediction. ``latency`` and all that was measured stay as they are: no metric sees a prediction.
    """
    found = {path: _filled(node, predictions) for path, node in nodes(data).items()}
    if isinstance(data, xr.Dataset):
        return found["/"]
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=data.attrs), **found})


def best(data: Data) -> pd.DataFrame:
    """The best compiler of each group, by what was measured and, where it was not, predicted.

    Parameters
    ----------
    data
        What `ngbkit.Sweep.run` with a budget, or `ngbkit.Sweep.estimate`, gave; or any dataset.

    Returns
    -------
    pandas.DataFrame
        A row a workload, its factors, a device and a batch size: ``compiler``, its ``latency`` (s), whether that was
        ``measured``, and ``lead``: how many times longer the next one takes. Groups without any result have no row.
    """
    import pandas as pd

    rows = [row for node in nodes(data).values() for row in _best(node)]
    return pd.DataFrame(rows)


def _best(node: xr.Dataset) -> list[dict[str, Any]]:
    measured = xr.apply_ufunc(arrays.median, node["latency"], input_core_dims=[["repeat"]])
    guessed = node[PREDICTED] if PREDICTED in node else xr.full_like(measured, np.nan)
    seconds = measured.fillna(guessed)
    if "compiler" not in seconds.dims:
        raise MetricError("the best compiler is asked for, and this dataset has one: select by a list, ['openvino'].")
    dims = ["workload", *factor_dims(node), "device", "batch_size"]
    seconds = seconds.expand_dims([dim for dim in dims if dim not in seconds.dims]).transpose(*dims, "compiler")
    known = measured.broadcast_like(seconds).transpose(*dims, "compiler").notnull().values
    rows = []
    for at in np.ndindex(*seconds.shape[:-1]):
        values = seconds.values[at]
        order = [one for one in np.argsort(values) if np.isfinite(values[one])]
        if order:
            first = order[0]
            labels = {dim: seconds[dim].values[place] for dim, place in zip(dims, at, strict=True)}
            lead = float(values[order[1]] / values[first]) if len(order) > 1 else np.nan
            rows.append(
                {
                    **labels,
                    **{"compiler": seconds["compiler"].values[first], "latency": float(values[first])},
                    **{"measured": bool(known[at][first]), "lead": lead},
                }
            )
    return rows


def _filled(node: xr.Dataset, predictions: Mapping[Key, Prediction]) -> xr.Dataset:
    status = node["status"]
    factors = factor_dims(node)
    labels = {dim: status[dim].values.tolist() for dim in map(str, status.dims)}
    values = np.full((3, *status.shape), np.nan)
    words = status.values.copy()
    for at in np.ndindex(*status.shape):
        own = {dim: labels[dim][place] for dim, place in zip(labels, at, strict=True)}
        settled = tuple(sorted((name, own[name]) for name in factors))
        key = (own["workload"], settled, own["device"], own["compiler"], own["batch_size"])
        if words[at] == "pending" and key in predictions:
            values[(slice(None), *at)] = predictions[key]
            words[at] = PREDICTED
    about = {name: (status.dims, one, describe(*VARIABLES[name])) for name, one in zip(VARIABLES, values, strict=True)}
    return node.assign({**about, "status": (status.dims, words, status.attrs)})
