"""The noise: identity against identity, and the coverage of intervals estimated from its groups.

The intervals come from ``ds.ngb.speedup(ci=0.95)``, so the coverage applies to the intervals that users see.
"""

from __future__ import annotations

import math
from importlib import resources as package_files
from typing import Annotated, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ngbkit import validation
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import UsageError
from ngbkit.metrics.statistics import Floats, estimate_process_sd, estimate_robust_sd, estimate_share
from ngbkit.runs.selfcheck.groups import (
    DETECTED,
    compute_intervals,
    compute_log_ratios,
    compute_round_medians,
    cross_validate_intervals,
    find_measured,
    flatten,
)
from ngbkit.runs.selfcheck.record import Noise
from ngbkit.sweep.column import BASELINE, Column
from ngbkit.sweep.grid import Grid
from ngbkit.workloads import cell

COPY = Column(compiler=BASELINE, options={"copy": 1}).label
NETWORK = "block"


def build_sweep(groups: int, *, hog: bool = False, compilers: tuple[str, ...] = (), **settings: Any) -> Grid:
    """Build the sweep of a noise check, with other `settings` of a sweep.

    It has at least two `groups`, of two processes of identity and one of each of the `compilers`; with `hog` every
    other group runs beside a busy process, and an odd number of groups is rounded up.
    """
    count = validation.check("groups", Annotated[int, validation.integer(2)], groups)
    source = (package_files.files("ngbkit.runs.selfcheck") / "block.py").read_text(encoding="utf-8")
    factors: dict[str, Any] = {"replicate": range(-(-count // 2) if hog else count)}
    if hog:
        factors["hog"] = (0, 1)
    workloads = cell.from_source(source, name=NETWORK, filename="ngbkit/selfcheck/block.py")
    others = [name for name in compilers if name != BASELINE]
    return Grid(workloads, compilers=(BASELINE, COPY, *others), factors=factors, **settings)


def split(data: Data) -> tuple[xr.Dataset, xr.Dataset | None]:
    """Split the dataset of such a sweep into its quiet groups, and those beside a busy process."""
    if not isinstance(data, xr.Dataset) or "replicate" not in data.dims or COPY not in data["compiler"]:
        raise UsageError(
            "this run is not a self-check. `ngbkit selfcheck` starts one, and `ngbkit runs` lists all runs."
        )
    if "hog" not in data.dims:
        return data, None
    return data.sel(hog=0, drop=True), data.sel(hog=1, drop=True)


def estimate(data: Data) -> tuple[Noise, Noise | None]:
    """Estimate the noise from the dataset of such a sweep: of its quiet groups, and of those beside a busy process."""
    quiet, contended = split(data)
    noise = _estimate(quiet, None)
    return noise, None if contended is None else _estimate(contended, noise.process_sd)


def _estimate(dataset: xr.Dataset, allowance: float | None) -> Noise:
    """Estimate the noise of groups; an `allowance` for processes of None is cross-validated over the groups."""
    good = find_measured(dataset, COPY)
    copies = dataset.sel(compiler=[BASELINE, COPY])
    pending = flatten((copies["status"] == "pending").any("compiler"))
    if not good.any():
        reason = next((str(text) for text in copies["error"].values.ravel() if text), "nothing was measured yet")
        raise UsageError(f"no group of this self-check was measured: {reason}.")
    measured = copies.isel(replicate=np.flatnonzero(good))
    groups = compute_log_ratios(measured, COPY)
    low, high = compute_intervals(measured, COPY, 0.0)
    covered_within = _find_covering(low, high)
    middle = np.array([np.median(ratios) if len(ratios) else np.nan for ratios in groups])
    wide_low, wide_high = (
        cross_validate_intervals(measured, COPY, groups, estimate_process_sd)
        if allowance is None
        else compute_intervals(measured, COPY, allowance)
    )
    covered = _find_covering(wide_low, wide_high)
    coverage, coverage_low, coverage_high = estimate_share(int(covered.sum()), len(covered), LEVEL)
    samples = flatten(measured["latency"].sel(compiler=BASELINE).notnull().sum("repeat"))
    return Noise(
        groups=len(groups),
        failed=int((~good & ~pending).sum()),
        pending=int(pending.sum()),
        rounds=float(np.median([len(ratios) for ratios in groups])),
        samples=float(np.median(samples)),
        noise_floor=compute_quantile((np.exp(high - middle) - np.exp(low - middle)) / 2, 0.5),
        smallest_speedup=float(np.exp(compute_quantile(np.concatenate([-wide_low, wide_high]), DETECTED))),
        process_sd=estimate_process_sd(groups),
        round_sd=float(np.median([estimate_robust_sd(ratios) for ratios in groups])),
        drift=_estimate_drift(np.nanmedian(compute_round_medians(measured, BASELINE)[0], axis=-1)),
        coverage=coverage,
        coverage_low=coverage_low,
        coverage_high=coverage_high,
        coverage_within=estimate_share(int(covered_within.sum()), len(covered_within))[0],
        contended_share=_compute_contended_share(measured),
    )


def compute_quantile(values: Floats, share: float) -> float:
    """Compute a quantile of the finite values; NaN where there is none, for want of rounds."""
    finite = values[np.isfinite(values)]
    return float(np.quantile(finite, share)) if len(finite) else math.nan


def _estimate_drift(latency: Floats) -> float:
    """Estimate how far the latency of one block moved over the groups: its 90th percentile over its 10th, less 1."""
    low, high = np.quantile(latency, [0.1, 0.9])
    return float(high / low - 1)


def _find_covering(low: Floats, high: Floats) -> NDArray[np.bool_]:
    """Find which intervals of log ratios cover 0; those without ends, for want of rounds, are dropped."""
    finite = np.isfinite(low) & np.isfinite(high)
    return (low[finite] <= 0) & (high[finite] >= 0)


def _compute_contended_share(dataset: xr.Dataset) -> float:
    """Compute the share of samples from rounds in which other work used the cores."""
    if "contended" not in dataset:
        return math.nan
    return float((dataset["contended"] > 0).where(dataset["latency"].notnull()).mean())
