"""The trials themselves: their spread, those that failed, what their compilers did, and those that were disturbed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import factor_dims
from ngbkit.metrics import arrays, contracts, ratios
from ngbkit.metrics.draws import described

if TYPE_CHECKING:
    import pandas as pd

_COUNTS = ("nodes_before", "nodes_after", "nodes_fused", "fallbacks", "graph_breaks")
_NO_ROUND = -1


def summary(dataset: xr.Dataset) -> xr.Dataset:
    """Median, mean and standard deviation of latency and throughput, how many samples, and the status.

    The paper reports mean and standard deviation (section V-A); the median is what every other metric here is made of.
    """
    latency = dataset["latency"]
    rates = ratios.ratio(dataset["batch_size"], latency).transpose(*latency.dims)
    found = {**_spread(latency, "latency", "s"), **_spread(rates, "throughput", "samples/s")}
    rate = ratios.prepare(dataset.drop_vars("round", errors="ignore"))["throughput"]
    found["throughput_median"] = described(rate, "throughput_median", "samples/s", "batch size over the median latency")
    count = latency.notnull().sum("repeat")
    found["samples"] = described(count, "samples", "1", "number of samples")
    return xr.Dataset({**found, "status": dataset["status"]}).assign_attrs(dataset.attrs)


def failures(dataset: xr.Dataset) -> pd.DataFrame:
    """The trials that are not ``ok``, pending ones among them: a row a trial, with its status and its error.

    Those that nobody asked for, which a merged dataset has where its runs leave holes in the grid, are not among them.
    """
    names = ["status", "error"]
    frame = dataset[names].to_dataframe().reset_index()
    return frame.loc[~frame["status"].isin(["ok", ""]), [*_labels(dataset), *names]].reset_index(drop=True)


def why(dataset: xr.Dataset) -> pd.DataFrame:
    """What the compilers did, a row a trial that is ``ok``.

    Columns are ``workload, <factors>, device, compiler, batch_size``; ``precision`` and ``threads``, from the contract;
    ``nodes_before, nodes_after, nodes_fused, fallbacks, graph_breaks``, NaN where the compiler does not tell; and
    ``facts``, a dict of all that it told.
    """
    blank = xr.full_like(dataset["status"], np.nan, dtype=object)
    empty = xr.full_like(dataset["status"], "", dtype=object)
    told = {"contract": dataset.get("contract", empty)}
    found = {
        "status": dataset["status"],
        "precision": contracts.field(xr.Dataset(told), "precision", ""),
        "threads": contracts.field(xr.Dataset(told), "threads", np.nan).astype(float),
        **{name: dataset.get(name, blank.astype(float)) for name in _COUNTS},
        "facts": dataset.get("facts", empty),
    }
    labels = _labels(dataset)
    scalars = [name for name in labels if name in dataset.coords and name not in dataset.dims]
    trials = xr.Dataset(found).expand_dims(scalars)
    frame = trials.reset_coords(drop=True).to_dataframe().reset_index()
    frame = frame.loc[frame["status"] == "ok"].reset_index(drop=True)
    frame["facts"] = [json.loads(text) if text else {} for text in frame["facts"]]
    return frame[[*(name for name in labels if name in frame), *(name for name in found if name != "status")]]


def undisturbed(dataset: xr.Dataset) -> xr.Dataset:
    """The dataset without the rounds in which something else had the cores.

    A round that is marked for one column of a group is left out for all of them, the anchor too: latency becomes NaN
    and the round -1, so that ratios are still of rounds that both have. The variable ``throughput`` follows. A dataset
    without the variable ``disturbed`` comes back as it is.
    """
    if "disturbed" not in dataset or "round" not in dataset:
        return dataset
    group = [str(dim) for dim in dataset["status"].dims if dim != "compiler"]
    numbers = _keyed(dataset["round"], group)
    marked = np.unique(numbers.values[((dataset["disturbed"] > 0) & (dataset["round"] >= 0)).transpose(*numbers.dims)])
    found = dataset.copy()
    for latency, rounds in (("latency", "round"), ("anchor_latency", "anchor_round")):
        if latency in found:
            keys = _keyed(dataset[rounds], group)
            out = keys.copy(data=np.isin(keys.values, marked) & (keys.values >= 0)).transpose(*dataset[rounds].dims)
            found[latency] = dataset[latency].where(~out).assign_attrs(dataset[latency].attrs)
            found[rounds] = dataset[rounds].where(~out, _NO_ROUND).assign_attrs(dataset[rounds].attrs)
    if "throughput" in found:
        rates = ratios.prepare(found.drop_vars("round"))["throughput"]
        found["throughput"] = rates.assign_attrs(dataset["throughput"].attrs)
    return found


def _keyed(rounds: xr.DataArray, group: list[str]) -> xr.DataArray:
    """Round numbers that no two groups share; negative where there is no round."""
    whole = rounds.fillna(_NO_ROUND).astype(np.int64).transpose(*group, ...)
    sizes = [whole.sizes[dim] for dim in group]
    most = int(np.iinfo(np.int32).max)  # a later session's rounds start at a million
    places = np.arange(int(np.prod(sizes))).reshape(*sizes, *[1] * (whole.ndim - len(group)))
    return whole.copy(data=np.where(whole.values >= 0, whole.values + places * most, _NO_ROUND))


def _labels(dataset: xr.Dataset) -> list[str]:
    return ["workload", *factor_dims(dataset), "device", "compiler", "batch_size"]


def _spread(values: xr.DataArray, name: str, units: str) -> dict[str, xr.DataArray]:
    middle = xr.apply_ufunc(arrays.median, values, input_core_dims=[["repeat"]])
    mean, deviation = xr.apply_ufunc(arrays.mean_std, values, input_core_dims=[["repeat"]], output_core_dims=[[], []])
    return {
        f"{name}_median": described(middle, f"{name}_median", units, f"median {name}"),
        f"{name}_mean": described(mean, f"{name}_mean", units, f"mean {name}"),
        f"{name}_std": described(deviation, f"{name}_std", units, f"standard deviation of the {name}"),
    }
