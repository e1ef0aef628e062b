"""The metrics on labelled datasets: each finds what it is relative to, or says which trial to add.

A trial that failed or is pending is NaN in every metric, and so is what is relative to it. With ``ci=0.95`` each gives
its interval too, by bootstrap over rounds: see `ngbkit.metrics.draws`, and `ngbkit.device.timing.intervals` for how
often it covers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr

from ngbkit.errors import UsageError
from ngbkit.metrics import arrays, ratios
from ngbkit.metrics.contracts import Unlike, differing
from ngbkit.metrics.draws import Metric, Sampler, estimate
from ngbkit.sweep.trials import BASELINE

Result = xr.DataArray | xr.Dataset
"""A metric; with `ci`, a dataset of it under its own name, of ``ci_low`` and of ``ci_high``."""

# metric: (units, long_name)
METRICS: Mapping[str, tuple[str, str]] = {
    "throughput": ("samples/s", "throughput"),
    "speedup": ("1", f"speed-up over {BASELINE}"),
    "rtr": ("1", "relative throughput rate: T(b) / T(1)"),
    "ase": ("1", "absolute scaling efficiency: T(b) / (b T(1))"),
    "bsr": ("1", f"batch scaling resilience: ASE over that of {BASELINE}"),
    "tcr": ("B/s", "transfer cost reduction a second"),
}


def throughput(dataset: xr.Dataset, *, ci: float | None = None) -> Result:
    """Batch size over median latency, in samples a second; dims without `repeat`.

    Parameters
    ----------
    dataset
        What `ngbkit.dataset.assembly.assemble` gave.
    ci
        The probability that an interval is to cover, in (0, 1); None for no interval.

    Raises
    ------
    UsageError
        `ci` is not a probability.
    MetricError
        An interval was asked for, and the dataset has no rounds to bootstrap over.
    """
    return estimate(ratios.throughput, ratios.prepare(dataset), ci, _about("throughput"))


def speedup(
    dataset: xr.Dataset, *, baseline: str = BASELINE, ci: float | None = None, unlike: Unlike = "error"
) -> Result:
    """T_c / T_baseline, paired round by round where the dataset has `round`, else from medians over all samples.

    Parameters
    ----------
    dataset, ci
        As for `throughput`.
    baseline
        The label of the column that is 1.
    unlike
        What to do about columns whose timing contract differs from the baseline's in precision, threads, transfers,
        synchronisation or overlap: ``"error"``; ``"mask"`` gives NaN there; ``"allow"`` compares them all the same.

    Raises
    ------
    MetricError
        There is no such baseline, or contracts differ; or as for `throughput`.
    UsageError
        As for `throughput`; `unlike` is not one of the three.
    """
    data = compared(dataset, "speedup", unlike, baseline)
    return estimate(_speedup("speedup", baseline), data, ci, _about("speedup", baseline))


def rtr(dataset: xr.Dataset, *, tied: bool = True, ci: float | None = None, unlike: Unlike = "error") -> Result:
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
    ci
        As for `throughput`.
    unlike
        As for `speedup`, of a column that was timed under one contract at this batch size and another at 1.

    Raises
    ------
    MetricError
        There is no batch size 1; or as for `speedup`.
    UsageError
        As for `speedup`.
    """
    return estimate(_scaling("rtr"), scaled(dataset, "rtr", tied, unlike), ci, _about("rtr"))


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
    return estimate(efficiency("ase"), scaled(dataset, "ase", tied, unlike), ci, _about("ase"))


def bsr(dataset: xr.Dataset, *, baseline: str = BASELINE, ci: float | None = None, unlike: Unlike = "error") -> Result:
    """ASE_c(b) / ASE_baseline(b), the batch scaling resilience (section V-A4), as speedup_c(b) / speedup_c(1).

    The two are the same number; in the second form each ratio is of trials that were measured against each other, so
    that drift between groups cancels.

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

    def found(data: xr.Dataset, sampler: Sampler | None) -> xr.DataArray:
        gains = ratios.speedup(data, "bsr", sampler, baseline)
        return ratios.ratio(gains, ratios.at(gains, "bsr", "batch_size", 1))

    return estimate(found, compared(dataset, "bsr", unlike, baseline), ci, _about("bsr", baseline))


def tcr(
    dataset: xr.Dataset,
    *,
    raw_bytes: float | xr.DataArray,
    compressed_bytes: float | xr.DataArray,
    ci: float | None = None,
) -> Result:
    """Bytes saved a second: (raw - compressed) bytes a sample, times throughput.

    Parameters
    ----------
    dataset, ci
        As for `throughput`.
    raw_bytes, compressed_bytes
        Of one sample; an array along ``workload`` (or any dim of the dataset) where they differ.

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
            f"tcr() needs sizes in bytes of at least 0; raw_bytes={raw_bytes} and {compressed_bytes=} came."
        )
    if np.any(np.asarray(raw_bytes - compressed_bytes) < 0):
        raise UsageError(
            "tcr() is about bytes that compression saves; a compressed sample is larger than a raw one: "
            f"{raw_bytes=}, {compressed_bytes=}. Swap them, or leave that network out."
        )
    sizes = xr.Dataset({"raw": raw_bytes, "compressed": compressed_bytes})

    def found(data: xr.Dataset, sampler: Sampler | None) -> xr.DataArray:
        rates = ratios.throughput(data, sampler)
        saved: xr.DataArray = xr.apply_ufunc(arrays.tcr, rates, data["raw"], data["compressed"])
        return saved

    data = xr.merge([ratios.prepare(dataset), sizes], join="exact")
    return estimate(found, data, ci, _about("tcr"))


def compared(dataset: xr.Dataset, metric: str, unlike: Unlike, baseline: str = BASELINE) -> xr.Dataset:
    """The prepared data of a metric that compares with a baseline, without the columns that are unlike it."""
    return ratios.prepare(dataset, mask=differing(dataset, metric, unlike, baseline=baseline))


def scaled(dataset: xr.Dataset, metric: str, tied: bool, unlike: Unlike) -> xr.Dataset:
    """The prepared data of a metric that compares batch sizes of one column."""
    return ratios.prepare(dataset, mask=differing(dataset, metric, unlike, against="batch_size"), anchored=tied)


def efficiency(metric: str) -> Metric:
    """ASE, of medians or of replicates."""

    def found(data: xr.Dataset, sampler: Sampler | None) -> xr.DataArray:
        return ratios.ratio(ratios.scaling(data, metric, sampler), data["throughput"]["batch_size"])

    return found


def _speedup(metric: str, baseline: str) -> Metric:
    return lambda data, sampler: ratios.speedup(data, metric, sampler, baseline)


def _scaling(metric: str) -> Metric:
    return lambda data, sampler: ratios.scaling(data, metric, sampler)


def _about(metric: str, baseline: str = BASELINE) -> tuple[str, str, str]:
    units, long_name = METRICS[metric]
    return metric, units, long_name.replace(BASELINE, baseline)
