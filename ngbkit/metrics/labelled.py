"""The metrics on labelled datasets: each selects its reference by label, or reports which trial to add.

A failed or pending trial is NaN in every metric, and so is every trial relative to it. With ``ci=0.95`` each metric
also returns its interval, by bootstrap over rounds: see `ngbkit.metrics.draws`, and `ngbkit.device.timing.intervals`
for its coverage.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr

from ngbkit.errors import UsageError
from ngbkit.metrics import arrays, ratios
from ngbkit.metrics.contracts import Unlike, mask_unlike
from ngbkit.metrics.draws import Sampler, estimate
from ngbkit.sweep.trials import BASELINE

Result = xr.DataArray | xr.Dataset
"""A metric; with `ci`, a dataset with the metric under its own name, ``ci_low`` and ``ci_high``."""

# metric: (units, long_name)
METRICS: Mapping[str, tuple[str, str]] = {
    "throughput": ("s-1", "throughput"),
    "speedup": ("1", f"speed-up over {BASELINE}"),
    "rtr": ("1", "relative throughput rate: T(b) / T(1)"),
    "ase": ("1", "absolute scaling efficiency: T(b) / (b T(1))"),
    "bsr": ("1", f"batch scaling resilience: ASE over that of {BASELINE}"),
    "tcr": ("byte s-1", "transfer cost reduction per second"),
}


def throughput(dataset: xr.Dataset, *, ci: float | None = None) -> Result:
    """Batch size over median latency, in samples per second; dims without `repeat`.

    Parameters
    ----------
    dataset
        The dataset of a run, or a selection from it.
    ci
        The probability that the interval covers, in (0, 1); None for no interval.

    Raises
    ------
    UsageError
        `ci` is not a probability.
    MetricError
        With `ci`: the dataset has no rounds to bootstrap over.
    """
    return estimate(ratios.throughput, ratios.prepare(dataset), ci, _describe("throughput"))


def speedup(
    dataset: xr.Dataset, *, baseline: str = BASELINE, ci: float | None = None, unlike: Unlike = "error"
) -> Result:
    """T_c / T_baseline, paired round by round where the dataset has `round`, else from medians over all samples.

    Parameters
    ----------
    dataset, ci
        As for `throughput`.
    baseline
        The label of the reference column, whose speed-up is 1.
    unlike
        How to treat columns whose timing contract differs from the baseline's in precision, threads, transfers,
        synchronisation or overlap: ``"error"`` raises, ``"mask"`` sets them to NaN, ``"allow"`` compares them anyway.

    Raises
    ------
    MetricError
        There is no such baseline, or contracts differ; or as for `throughput`.
    UsageError
        `unlike` is invalid; or as for `throughput`.
    """

    def compute(data: xr.Dataset, sampler: Sampler | None) -> xr.DataArray:
        return ratios.speedup(data, "speedup", sampler, baseline)

    data = prepare_compared(dataset, "speedup", unlike, baseline)
    return estimate(compute, data, ci, _describe("speedup", baseline))


def rtr(dataset: xr.Dataset, *, tied: bool = True, ci: float | None = None, unlike: Unlike = "error") -> Result:
    """T_c(b) / T_c(1), the relative throughput rate (the paper, section V-A4); below 1 batching costs throughput.

    Parameters
    ----------
    dataset
        With batch size 1.
    tied
        Batch sizes are measured one after the other. Where the dataset has anchors, each rate is divided by that of
        `identity` at batch size 1 in the same rounds, so that drift between them cancels; the price is the noise of
        `identity`, which more repeats reduce, as they never reduce drift. False compares the rates as measured.
    ci
        As for `throughput`.
    unlike
        As for `speedup`, for a column whose contract at this batch size differs from its contract at 1.

    Raises
    ------
    MetricError
        There is no batch size 1; or as for `speedup`.
    UsageError
        As for `speedup`.
    """

    def compute(data: xr.Dataset, sampler: Sampler | None) -> xr.DataArray:
        return ratios.scaling(data, "rtr", sampler)

    return estimate(compute, prepare_scaled(dataset, "rtr", tied, unlike), ci, _describe("rtr"))


def ase(dataset: xr.Dataset, *, tied: bool = True, ci: float | None = None, unlike: Unlike = "error") -> Result:
    """T_c(b) / (b T_c(1)), the absolute scaling efficiency (section V-A4): 1 is perfect scaling with the batch.

    Parameters
    ----------
    dataset, tied, ci, unlike
        As for `rtr`.

    Raises
    ------
    MetricError, UsageError
        As for `rtr`.
    """

    def compute(data: xr.Dataset, sampler: Sampler | None) -> xr.DataArray:
        return compute_ase(data, "ase", sampler)

    return estimate(compute, prepare_scaled(dataset, "ase", tied, unlike), ci, _describe("ase"))


def bsr(dataset: xr.Dataset, *, baseline: str = BASELINE, ci: float | None = None, unlike: Unlike = "error") -> Result:
    """ASE_c(b) / ASE_baseline(b), the batch scaling resilience (section V-A4), as speedup_c(b) / speedup_c(1).

    The two are equal; in the second form each ratio is of trials that were measured against each other, so that drift
    between groups cancels.

    Parameters
    ----------
    dataset, baseline, ci, unlike
        As for `speedup`.

    Raises
    ------
    MetricError
        There is no batch size 1; or as for `speedup`.
    UsageError
        As for `speedup`.
    """

    def compute(data: xr.Dataset, sampler: Sampler | None) -> xr.DataArray:
        return compute_bsr(data, "bsr", sampler, baseline)

    return estimate(compute, prepare_compared(dataset, "bsr", unlike, baseline), ci, _describe("bsr", baseline))


def tcr(
    dataset: xr.Dataset,
    *,
    raw_bytes: float | xr.DataArray,
    compressed_bytes: float | xr.DataArray,
    ci: float | None = None,
) -> Result:
    """Bytes saved per second: (raw - compressed) bytes per sample, times throughput.

    Parameters
    ----------
    dataset, ci
        As for `throughput`.
    raw_bytes, compressed_bytes
        The size of one sample; an array along ``workload`` (or any dim of the dataset) where sizes differ.

    Raises
    ------
    UsageError
        A size is negative, or a compressed sample is larger than a raw one; or as for `throughput`.
    MetricError
        As for `throughput`.
    """
    raw, compressed = np.asarray(raw_bytes, float), np.asarray(compressed_bytes, float)
    if raw.min() < 0 or compressed.min() < 0:
        raise UsageError(
            f"tcr(): invalid sizes: got {raw_bytes=} and {compressed_bytes=}; expected bytes of at least 0."
        )
    if np.any(np.asarray(raw_bytes - compressed_bytes) < 0):
        raise UsageError(
            f"tcr(): a compressed sample is larger than a raw one: got {raw_bytes=}, {compressed_bytes=}; "
            "expected compressed_bytes <= raw_bytes. Swap them, or exclude that network."
        )
    sizes = xr.Dataset({"raw": raw_bytes, "compressed": compressed_bytes})

    def compute(data: xr.Dataset, sampler: Sampler | None) -> xr.DataArray:
        rates = ratios.throughput(data, sampler)
        saved: xr.DataArray = xr.apply_ufunc(arrays.tcr, rates, data["raw"], data["compressed"])
        return saved

    data = xr.merge([ratios.prepare(dataset), sizes], join="exact")
    return estimate(compute, data, ci, _describe("tcr"))


def prepare_compared(dataset: xr.Dataset, metric: str, unlike: Unlike, baseline: str = BASELINE) -> xr.Dataset:
    """Prepare the data of a metric that compares columns with a baseline, masking those that are unlike it."""
    return ratios.prepare(dataset, mask=mask_unlike(dataset, metric, unlike, baseline=baseline))


def prepare_scaled(dataset: xr.Dataset, metric: str, tied: bool, unlike: Unlike) -> xr.Dataset:
    """Prepare the data of a metric that compares batch sizes of one column."""
    return ratios.prepare(dataset, mask=mask_unlike(dataset, metric, unlike, against="batch_size"), anchored=tied)


def compute_ase(data: xr.Dataset, metric: str, sampler: Sampler | None) -> xr.DataArray:
    """ASE, of medians or of replicates."""
    return ratios.ratio(ratios.scaling(data, metric, sampler), data["throughput"]["batch_size"])


def compute_bsr(data: xr.Dataset, metric: str, sampler: Sampler | None, baseline: str = BASELINE) -> xr.DataArray:
    """BSR, of medians or of replicates."""
    speedups = ratios.speedup(data, metric, sampler, baseline)
    return ratios.ratio(speedups, ratios.select_reference(speedups, metric, "batch_size", 1))


def _describe(metric: str, baseline: str = BASELINE) -> tuple[str, str, str]:
    units, long_name = METRICS[metric]
    return metric, units, long_name.replace(BASELINE, baseline)
