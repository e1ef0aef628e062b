"""The metrics on labelled datasets: each finds what it is relative to, or says which trial to add.

A trial that failed or is pending is NaN in every metric, and so is what is relative to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ngbkit.dataset import describe, factor_dims
from ngbkit.errors import MetricError, UsageError
from ngbkit.metrics import arrays
from ngbkit.sweep import BASELINE

if TYPE_CHECKING:
    import pandas as pd

# No compiler can be called so.
_ANCHOR = "\0anchor"

# metric: (units, long_name)
METRICS: Mapping[str, tuple[str, str]] = {
    "throughput": ("samples/s", "throughput"),
    "speedup": ("1", f"speed-up over {BASELINE}"),
    "rtr": ("1", "relative throughput rate: T(b) / T(1)"),
    "ase": ("1", "absolute scaling efficiency: T(b) / (b T(1))"),
    "bsr": ("1", f"batch scaling resilience: ASE over that of {BASELINE}"),
    "tcr": ("B/s", "transfer cost reduction a second"),
}


def throughput(dataset: xr.Dataset) -> xr.DataArray:
    """Batch size over median latency, in samples a second; dims without `repeat`."""
    if "latency" not in dataset:
        return _named(dataset["throughput"], "throughput")
    both = (dataset["latency"], dataset["batch_size"])
    return _named(xr.apply_ufunc(arrays.throughput, *both, input_core_dims=[["repeat"], []]), "throughput")


def speedup(dataset: xr.Dataset) -> xr.DataArray:
    """T_c / T_identity, paired round by round where the dataset has `round`, else from medians over all samples.

    Raises
    ------
    MetricError
        There is no `identity`.
    """
    return _speedup(dataset, "speedup")


def rtr(dataset: xr.Dataset, *, tied: bool = True) -> xr.DataArray:
    """T_c(b) / T_c(1), the relative throughput rate (the paper, section V-A4); below 1 batching costs throughput.

    Parameters
    ----------
    dataset
        With batch size 1.
    tied
        Batch sizes are measured one after the other. Where the dataset has anchors, both rates are taken relative to
        `identity` at batch size 1 in the very rounds that they are from, so that drift in between cancels; the price is
        the noise of `identity`, which more repeats make small, as they never do drift. False compares the rates as
        they are.

    Raises
    ------
    MetricError
        There is no batch size 1.
    """
    return _named(_scaling(dataset, "rtr", tied), "rtr")


def ase(dataset: xr.Dataset, *, tied: bool = True) -> xr.DataArray:
    """T_c(b) / (b T_c(1)), the absolute scaling efficiency (section V-A4): 1 is perfect scaling with the batch.

    Parameters
    ----------
    dataset, tied
        As for `rtr`.

    Raises
    ------
    MetricError
        There is no batch size 1.
    """
    return _named(_ratio(_scaling(dataset, "ase", tied), dataset["batch_size"]), "ase")


def bsr(dataset: xr.Dataset) -> xr.DataArray:
    """ASE_c(b) / ASE_identity(b), the batch scaling resilience (section V-A4), as speedup_c(b) / speedup_c(1).

    The two are the same number; in the second form each ratio is of trials that were measured against each other, so
    that drift between groups cancels.

    Raises
    ------
    MetricError
        There is no `identity`, or no batch size 1.
    """
    gains = _speedup(dataset, "bsr")
    return _named(_ratio(gains, _at(gains, "bsr", "batch_size", 1)), "bsr")


def depth_slope(dataset: xr.Dataset, dim: str = "depth") -> xr.DataArray:
    """The least-squares slope of the speed-up over the factor `dim`, of the depths that were measured.

    Raises
    ------
    MetricError
        There is no `identity`, or there are not two values of `dim`.
    """
    depths = _values(dataset, "depth_slope", dim)
    gains = _speedup(dataset, "depth_slope")
    slopes = xr.apply_ufunc(arrays.slope, gains, kwargs={"x": depths}, input_core_dims=[[dim]])
    return _described(slopes, f"{dim}_slope", "1", f"least-squares slope of the speed-up over {dim}")


def retention(dataset: xr.Dataset, dim: str = "depth") -> xr.DataArray:
    """The speed-up at the largest value of the factor `dim` over that at the smallest.

    Raises
    ------
    MetricError
        There is no `identity`, or there are not two values of `dim`.
    """
    depths = _values(dataset, "retention", dim)
    gains = _speedup(dataset, "retention")
    largest, smallest = (gains.isel({dim: at}, drop=True) for at in (int(depths.argmax()), int(depths.argmin())))
    long_name = f"speed-up at {dim} {depths.max():g} over that at {depths.min():g}"
    return _described(_ratio(largest, smallest), "retention", "1", long_name)


def tcr(
    dataset: xr.Dataset, *, raw_bytes: float | xr.DataArray, compressed_bytes: float | xr.DataArray
) -> xr.DataArray:
    """Bytes saved a second: (raw - compressed) bytes a sample, times throughput.

    Parameters
    ----------
    raw_bytes, compressed_bytes
        Of one sample; an array along ``workload`` (or any dim of the dataset) where they differ.

    Raises
    ------
    UsageError
        A size is negative, or a compressed sample is larger than a raw one.
    """
    raw, compressed = np.asarray(raw_bytes, float), np.asarray(compressed_bytes, float)
    if raw.min() < 0 or compressed.min() < 0:
        raise UsageError(
            f"tcr() needs sizes in bytes of at least 0; raw_bytes={raw_bytes} and {compressed_bytes=} came."
        )
    if np.any(np.asarray(raw_bytes - compressed_bytes) < 0):
        raise UsageError(
            "tcr() is about bytes that compression saves; a compressed sample is larger than a raw one: "
            f"{raw_bytes=}, {compressed_bytes=}. Swap them, or leave that network out."
        )
    return _named(xr.apply_ufunc(arrays.tcr, throughput(dataset), raw_bytes, compressed_bytes), "tcr")


def summary(dataset: xr.Dataset) -> xr.Dataset:
    """Median, mean and standard deviation of latency and throughput, how many samples, and the status.

    The paper reports mean and standard deviation (section V-A); the median is what every other metric here is made of.
    """
    latency = dataset["latency"]
    rates = _ratio(dataset["batch_size"], latency).transpose(*latency.dims)
    found = {**_spread(latency, "latency", "s"), **_spread(rates, "throughput", "samples/s")}
    found["throughput_median"] = throughput(dataset).assign_attrs(long_name="batch size over the median latency")
    count = latency.notnull().sum("repeat")
    found["samples"] = _described(count, "samples", "1", "number of samples")
    return xr.Dataset({**found, "status": dataset["status"]}).assign_attrs(dataset.attrs)


def failures(dataset: xr.Dataset) -> pd.DataFrame:
    """The trials that are not ``ok``, pending ones among them: a row a trial, with its status and its error."""
    names = ["status", "error"]
    order = ["workload", *factor_dims(dataset), "device", "compiler", "batch_size"]
    frame = dataset[names].to_dataframe().reset_index()
    return frame.loc[frame["status"] != "ok", [*order, *names]].reset_index(drop=True)


def _spread(values: xr.DataArray, name: str, units: str) -> dict[str, xr.DataArray]:
    center = xr.apply_ufunc(arrays.median, values, input_core_dims=[["repeat"]])
    mean, deviation = xr.apply_ufunc(arrays.mean_std, values, input_core_dims=[["repeat"]], output_core_dims=[[], []])
    return {
        f"{name}_median": _described(center, f"{name}_median", units, f"median {name}"),
        f"{name}_mean": _described(mean, f"{name}_mean", units, f"mean {name}"),
        f"{name}_std": _described(deviation, f"{name}_std", units, f"standard deviation of the {name}"),
    }


def _scaling(dataset: xr.Dataset, metric: str, tied: bool) -> xr.DataArray:
    """T_c(b) / T_c(1), tied by anchors where there are any and that is wanted."""
    rates = throughput(dataset)
    plain = _ratio(rates, _at(rates, metric, "batch_size", 1))
    if (
        not tied
        or not {"anchor_latency", "round", "latency"} <= set(dataset.variables)
        or BASELINE not in dataset["compiler"]
    ):
        return plain
    latency, rounds = (
        xr.concat([dataset[own], _anchor(dataset, own).expand_dims(compiler=[_ANCHOR])], "compiler", join="override")
        for own in ("latency", "round")
    )
    each, out = ["repeat"], ["rounds"]
    medians = xr.apply_ufunc(
        arrays.round_medians, latency, rounds, input_core_dims=[each, each], output_core_dims=[out]
    )
    own, anchor = medians.drop_sel(compiler=_ANCHOR), medians.sel(compiler=_ANCHOR, drop=True)
    beside = xr.apply_ufunc(arrays.paired_speedup, own, anchor, input_core_dims=[out, out]) * dataset["batch_size"]
    scaled = _ratio(beside, beside.sel(batch_size=1, drop=True))
    return scaled.where(scaled.notnull(), plain).transpose(*rates.dims)


def _anchor(dataset: xr.Dataset, name: str) -> xr.DataArray:
    """`latency` or `round` of the anchors; in the groups of batch size 1 the baseline is its own anchor."""
    beside = dataset[f"anchor_{name}"]
    baseline = dataset[name].sel(compiler=BASELINE, drop=True)
    return beside.where(dataset["batch_size"] != 1, baseline)


def _speedup(dataset: xr.Dataset, metric: str) -> xr.DataArray:
    if "latency" not in dataset or "round" not in dataset:
        rates = throughput(dataset)
        return _named(_ratio(rates, _at(rates, metric, "compiler", BASELINE)), "speedup")
    both, each, out = (dataset["latency"], dataset["round"]), ["repeat"], ["rounds"]
    medians = xr.apply_ufunc(arrays.round_medians, *both, input_core_dims=[each, each], output_core_dims=[out])
    baseline = _at(medians, metric, "compiler", BASELINE)
    paired = xr.apply_ufunc(arrays.paired_speedup, medians, baseline, input_core_dims=[out, out])
    return _named(paired, "speedup")


def _ratio(above: xr.DataArray, below: xr.DataArray) -> xr.DataArray:
    found: xr.DataArray = xr.apply_ufunc(arrays.ratio, above, below)
    return found


def _named(values: xr.DataArray, metric: str) -> xr.DataArray:
    return _described(values, metric, *METRICS[metric])


def _described(values: xr.DataArray, name: str, units: str, long_name: str) -> xr.DataArray:
    described = values.rename(name)
    described.attrs = describe(units, long_name)
    return described


def _at(values: xr.DataArray, metric: str, dim: str, label: str | int) -> xr.DataArray:
    """The part of some values that a metric is relative to, without that dim."""
    found = np.atleast_1d(values[dim].values).tolist() if dim in values.coords else []
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


def _added(dim: str, label: str | int, found: Sequence[Any]) -> str:
    """What to write in a sweep, in Python and in a shell, so that it holds `label` too."""
    argument, flag = {"compiler": ("compilers", "-c"), "batch_size": ("batch_sizes", "-b")}[dim]
    return f"Add {argument}=[{label!r}, …] or {flag} {','.join(map(str, [label, *found]))}."


def _values(dataset: xr.Dataset, metric: str, dim: str) -> np.ndarray:
    """The values of a factor, of which a metric needs two."""
    depths = np.atleast_1d(dataset[dim].values) if dim in dataset.coords else np.array([])
    if dim in dataset.dims and len(depths) > 1:
        return depths
    has = f"only {dim} {depths[0]:g}" if len(depths) else f"no factor {dim!r}"
    others = [name for name in factor_dims(dataset) if name != dim]
    hint = f"it varies {', '.join(others)}" if others and not len(depths) else f"the sweep has {has}"
    start = f"{depths[0]:g}" if len(depths) else "1"
    raise MetricError(
        f"{metric}() compares speed-ups over {dim} and needs at least two values of it; {hint}. "
        f"Add factors={{{dim!r}: [{start}, …]}} or --factor {dim}={start},…, for a workload that takes it."
    )
