"""Throughputs and the ratios of what was measured side by side: what every other metric is made of."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from ngbkit.errors import MetricError
from ngbkit.metrics import arrays
from ngbkit.metrics.draws import Sampler, center
from ngbkit.sweep.trials import BASELINE

# No compiler can be called so.
_ANCHOR = "\0anchor"


def prepare(dataset: xr.Dataset, *, mask: xr.DataArray | None = None, anchored: bool = False) -> xr.Dataset:
    """What the ratios need of a dataset, once for medians and for replicates.

    Parameters
    ----------
    dataset
        What `ngbkit.dataset.assembly.assemble` gave, whole or selected from.
    mask
        Trials to leave out.
    anchored
        Whether the anchors are wanted.

    Returns
    -------
    xarray.Dataset
        ``throughput``; ``medians``, of each round; ``anchor``, the same of the anchor where there is one and it is
        wanted; ``process_sd``; and ``stopped``, where a stopping rule ended the measurement. A dataset without rounds
        gives ``throughput`` alone.
    """
    found = xr.Dataset({"throughput": _throughput(dataset)})
    if {"latency", "round"} <= set(dataset.variables):
        anchored = anchored and "anchor_latency" in dataset and "compiler" in dataset.dims
        anchored = anchored and BASELINE in dataset["compiler"]
        medians = _round_medians(dataset, anchored)
        if anchored:
            found["anchor"] = medians.sel(compiler=_ANCHOR, drop=True)
            medians = medians.drop_sel(compiler=_ANCHOR)
        found["medians"] = medians
        found["process_sd"] = process_deviation(dataset)
        never = xr.zeros_like(found["throughput"], dtype=bool)
        found["stopped"] = dataset["looks"] > 0 if "looks" in dataset else never
    if mask is not None:
        for name in {"throughput", "medians"} & set(found):
            dims = found[name].dims
            found[name] = found[name].where(~mask).transpose(*dims)
    return found


def process_deviation(dataset: xr.Dataset) -> xr.DataArray:
    """By device: the standard deviation of the logarithm of a ratio between two processes; 0 where nobody looked."""
    known = environments(dataset)
    looked = [known.get(str(label), {}).get("selfcheck") or {} for label in _labels(dataset, "device")]
    found = np.array([float(one.get("process_sd") or 0) for one in looked])
    if "device" in dataset.dims:
        return xr.DataArray(found, {"device": dataset["device"]}, ["device"])
    return xr.DataArray(float(found[0]) if len(found) else 0.0)


def environments(dataset: xr.Dataset) -> dict[str, dict[str, Any]]:
    """What each device is, by its label."""
    known: dict[str, dict[str, Any]] = json.loads(dataset.attrs.get("environments") or "{}")
    return known


def throughput(data: xr.Dataset, sampler: Sampler | None) -> xr.DataArray:
    """Samples a second. Replicates are of the median of the rounds' medians, centred on the throughput itself.

    Another process of the same thing differs by the deviation that the self-check found, of which each of the two that
    a ratio is of has half the variance.
    """
    rates = data["throughput"]
    if sampler is None:
        return rates
    slower = ratio(sampler.medians(data["medians"]), center(data["medians"], None))
    return ratio(rates, sampler.shaken(slower, data["process_sd"] / math.sqrt(2)))


def speedup(data: xr.Dataset, metric: str, sampler: Sampler | None, baseline: str = BASELINE) -> xr.DataArray:
    """T_c / T_baseline, paired round by round where there are rounds, else from throughputs."""
    if "medians" not in data:
        return ratio(data["throughput"], at(data["throughput"], metric, "compiler", baseline))
    beside = at(data["medians"], metric, "compiler", baseline)
    return _paired(data, beside, data["medians"]["compiler"] == baseline, sampler)


def scaling(data: xr.Dataset, metric: str, sampler: Sampler | None) -> xr.DataArray:
    """T_c(b) / T_c(1), tied by anchors where there are any."""
    rates = data["throughput"]
    first = at(rates, metric, "batch_size", 1)
    if "anchor" not in data or "batch_size" not in rates.dims:
        if sampler is not None:
            rates = throughput(data, sampler)
            first = at(rates, metric, "batch_size", 1)
        return ratio(rates, first)
    itself = (data["medians"]["compiler"] == BASELINE) & (data["medians"]["batch_size"] == 1)
    tied = _tied(data, itself, None)
    loose = tied.isnull()
    if sampler is None:
        return tied.where(~loose, ratio(rates, first)).transpose(*rates.dims)
    draws = _tied(data, itself, sampler)
    if loose.any():
        rates = throughput(data, sampler)
        draws = draws.where(~loose, ratio(rates, at(rates, metric, "batch_size", 1)))
    return draws


def ratio(above: xr.DataArray, below: xr.DataArray) -> xr.DataArray:
    """The quotient; NaN where either is, or over 0."""
    found: xr.DataArray = xr.apply_ufunc(arrays.ratio, above, below)
    return found


def at(values: xr.DataArray, metric: str, dim: str, label: str | int) -> xr.DataArray:
    """The part of some values that a metric is relative to, without that dim.

    Raises
    ------
    MetricError
        It is not there; the message says what to add, in Python and in a shell.
    """
    found = _labels(values, dim)
    if label in found:
        return values.sel({dim: label}, drop=True) if dim in values.dims else values.drop_vars(dim)
    what = {"compiler": f"the compiler {label!r}", "batch_size": f"batch size {label}"}[dim]
    has = ", ".join(map(str, found))
    if dim in values.dims:
        raise MetricError(f"{metric}() is relative to {what}; the sweep has {has}. {_added(dim, label, found)}")
    raise MetricError(
        f"{metric}() is relative to {what}; this selection has {f'only {has}' if found else 'no such dim'}. "
        f"Compute it first and select then: ds.ngb.{metric}().sel({dim}={found[0] if found else label!r})."
    )


def _throughput(dataset: xr.Dataset) -> xr.DataArray:
    if "latency" not in dataset:
        return dataset["throughput"]
    both = (dataset["latency"], dataset["batch_size"])
    found: xr.DataArray = xr.apply_ufunc(arrays.throughput, *both, input_core_dims=[["repeat"], []])
    return found


def _round_medians(dataset: xr.Dataset, anchored: bool) -> xr.DataArray:
    """Of every column, and of the anchors as one more, so that all count their rounds alike."""
    both = dataset["latency"], dataset["round"]
    if anchored:
        columns = [_anchor(dataset, name).expand_dims(compiler=[_ANCHOR]) for name in ("latency", "round")]
        latency, rounds = (
            xr.concat([own, beside], "compiler", join="override") for own, beside in zip(both, columns, strict=True)
        )
        both = latency, rounds
    each, out = ["repeat"], ["rounds"]
    found: xr.DataArray = xr.apply_ufunc(
        arrays.round_medians, *both, input_core_dims=[each, each], output_core_dims=[out]
    )
    return found


def _anchor(dataset: xr.Dataset, name: str) -> xr.DataArray:
    """`latency` or `round` of the anchors; in the groups of batch size 1 the baseline is its own anchor."""
    beside = dataset[f"anchor_{name}"]
    baseline = at(dataset[name], "rtr", "compiler", BASELINE)
    return beside.where(dataset["batch_size"] != 1, baseline)


def _tied(data: xr.Dataset, itself: xr.DataArray, sampler: Sampler | None) -> xr.DataArray:
    """T(b) / T(1), each taken over the anchor's in the rounds that it is from."""
    beside = _paired(data, data["anchor"], itself, sampler) * data["batch_size"]
    return ratio(beside, beside.sel(batch_size=1, drop=True))


def _paired(data: xr.Dataset, other: xr.DataArray, itself: xr.DataArray, sampler: Sampler | None) -> xr.DataArray:
    """The latency of `other` over each column's own, round by round; of medians where they share no round.

    A column over itself, which `itself` marks, is of one process; any other pair is of two.
    """
    own, core = data["medians"], ["rounds"]
    if sampler is None:
        found: xr.DataArray = xr.apply_ufunc(arrays.paired_speedup, own, other, input_core_dims=[core, core])
        return found
    ratios = ratio(other, own).transpose(*own.dims)
    draws = sampler.medians(ratios)
    alone = ~ratios.notnull().any("rounds")
    if (alone & own.notnull().any("rounds")).any():
        draws = draws.where(~alone, ratio(sampler.medians(other), sampler.medians(own)))
    return sampler.shaken(draws, data["process_sd"] * ~itself)


def _labels(values: xr.DataArray | xr.Dataset, dim: str) -> list[Any]:
    return np.atleast_1d(values[dim].values).tolist() if dim in values.coords else []


def _added(dim: str, label: str | int, found: Sequence[Any]) -> str:
    """What to write in a sweep, in Python and in a shell, so that it holds `label` too."""
    argument, flag = {"compiler": ("compilers", "-c"), "batch_size": ("batch_sizes", "-b")}[dim]
    return f"Add {argument}=[{label!r}, …] or {flag} {','.join(map(str, [label, *found]))}."
