"""The noise: identity against identity, and the coverage of intervals estimated from its groups.

The intervals are those of ``ds.ngb.speedup(ci=0.95)``, so the coverage is that of the intervals that users see.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from importlib import resources as package_files
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

import ngbkit.figures.accessor  # noqa: F401  registers `ds.ngb`
from ngbkit.dataset.storage import Data
from ngbkit.errors import UsageError
from ngbkit.metrics import arrays
from ngbkit.runs.selfcheck import estimates
from ngbkit.runs.selfcheck.estimates import Floats
from ngbkit.runs.selfcheck.limits import LEVEL
from ngbkit.runs.selfcheck.record import Noise
from ngbkit.sweep import validation
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.trials import BASELINE
from ngbkit.workloads import cell

COPY = 'identity{"copy":1}'
NETWORK = "block"
# Cross-validation: the allowance for processes of a group is estimated from the groups of the other folds.
_FOLDS = 10
# The smallest speed-up is distinguishable from 1 in this share of the groups.
_DETECTED = 0.9


def build_sweep(groups: int, *, hog: bool = False, **settings: Any) -> Grid:
    """Build the sweep of a noise check, with other `settings` of a sweep.

    It has at least two `groups` of two processes each; with `hog` every other group runs beside a busy process, and an
    odd number of groups is rounded up.
    """
    count = validation.count("groups", groups, least=2)
    source = (package_files.files("ngbkit.runs.selfcheck") / "block.py").read_text(encoding="utf-8")
    factors: dict[str, Any] = {"replicate": range(-(-count // 2) if hog else count)}
    if hog:
        factors["hog"] = (0, 1)
    workloads = cell.from_source(source, name=NETWORK, filename="ngbkit/selfcheck/block.py")
    return Grid(workloads, compilers=(BASELINE, COPY), factors=factors, **settings)


def estimate(data: Data) -> tuple[Noise, Noise | None]:
    """Estimate the noise from the dataset of such a sweep: of its quiet groups, and of those beside a busy process."""
    if not isinstance(data, xr.Dataset) or "replicate" not in data.dims or COPY not in data["compiler"]:
        raise UsageError(
            "this run is not a self-check. `ngbkit selfcheck` starts one, and `ngbkit runs` lists all runs."
        )
    if "hog" not in data.dims:
        return _estimate(data, None), None
    quiet = _estimate(data.sel(hog=0, drop=True), None)
    return quiet, _estimate(data.sel(hog=1, drop=True), quiet.process_sd)


def _estimate(dataset: xr.Dataset, allowance: float | None) -> Noise:
    """Estimate the noise of groups; an `allowance` for processes of None is cross-validated over the groups."""
    good = _flatten((dataset["status"] == "ok").all("compiler"))
    pending = _flatten((dataset["status"] == "pending").any("compiler"))
    if not good.any():
        reason = next((str(text) for text in dataset["error"].values.ravel() if text), "nothing was measured yet")
        raise UsageError(f"no group of this self-check was measured: {reason}.")
    measured = dataset.isel(replicate=np.flatnonzero(good))
    medians = xr.apply_ufunc(
        arrays.round_medians,
        measured["latency"],
        measured["round"],
        input_core_dims=[["repeat"], ["repeat"]],
        output_core_dims=[["rounds"]],
    )
    baseline, copy = (_reshape_rounds(medians.sel(compiler=label)) for label in (BASELINE, COPY))
    groups = [row[np.isfinite(row)] for row in np.log(baseline / copy)]
    low, high = _compute_intervals(measured, 0.0)
    covered_within = _find_covering(low, high)
    middle = np.array([np.median(ratios) for ratios in groups])
    wide_low, wide_high = _compute_wide_intervals(measured, groups, allowance)
    covered = _find_covering(wide_low, wide_high)
    coverage, coverage_low, coverage_high = estimates.estimate_share(int(covered.sum()), len(covered), LEVEL)
    samples = _flatten(measured["latency"].sel(compiler=BASELINE).notnull().sum("repeat"))
    return Noise(
        groups=len(groups),
        failed=int((~good & ~pending).sum()),
        pending=int(pending.sum()),
        rounds=float(np.median([len(ratios) for ratios in groups])),
        samples=float(np.median(samples)),
        noise_floor=_compute_quantile((np.exp(high - middle) - np.exp(low - middle)) / 2, 0.5),
        smallest_speedup=float(np.exp(_compute_quantile(np.concatenate([-wide_low, wide_high]), _DETECTED))),
        process_sd=estimates.estimate_process_sd(groups),
        round_sd=estimates.estimate_round_sd(groups),
        drift=estimates.estimate_drift(np.nanmedian(baseline, axis=-1)),
        coverage=coverage,
        coverage_low=coverage_low,
        coverage_high=coverage_high,
        coverage_within=estimates.estimate_share(int(covered_within.sum()), len(covered_within))[0],
        disturbed_share=_compute_disturbed_share(measured),
    )


def _compute_intervals(dataset: xr.Dataset, process_sd: float) -> tuple[Floats, Floats]:
    """Compute the logarithms of the ends of each group's interval on a machine of that `process_sd`."""
    speedups: Any = _set_process_sd(dataset, process_sd).ngb.speedup(ci=LEVEL)
    copies = speedups.sel(compiler=COPY)
    return np.log(_flatten(copies["ci_low"])), np.log(_flatten(copies["ci_high"]))


def _compute_wide_intervals(
    dataset: xr.Dataset, groups: Sequence[Floats], allowance: float | None
) -> tuple[Floats, Floats]:
    """Compute them with an allowance for processes; an allowance of None is that of the groups in the other folds."""
    if allowance is not None:
        return _compute_intervals(dataset, allowance)
    low, high = np.full(len(groups), np.nan), np.full(len(groups), np.nan)
    for first in range(min(_FOLDS, len(groups))):
        fold = np.arange(first, len(groups), _FOLDS)
        others = [ratios for index, ratios in enumerate(groups) if index % _FOLDS != first]
        low[fold], high[fold] = _compute_intervals(dataset.isel(replicate=fold), estimates.estimate_process_sd(others))
    return low, high


def _set_process_sd(dataset: xr.Dataset, process_sd: float) -> xr.Dataset:
    """Return the dataset as if a self-check of its devices had estimated `process_sd`."""
    environments = json.loads(dataset.attrs.get("environments", "{}"))
    environments = {
        label: {**environments.get(label, {}), "selfcheck": {"process_sd": process_sd}}
        for label in np.atleast_1d(dataset["device"].values).tolist()
    }
    return dataset.assign_attrs(environments=json.dumps(environments))


def _find_covering(low: Floats, high: Floats) -> NDArray[np.bool_]:
    """Find which intervals of log ratios cover 0; those without ends, for want of rounds, are dropped."""
    finite = np.isfinite(low) & np.isfinite(high)
    return (low[finite] <= 0) & (high[finite] >= 0)


def _compute_quantile(values: Floats, share: float) -> float:
    """Compute a quantile of the finite values; NaN where there is none, for want of rounds."""
    finite = values[np.isfinite(values)]
    return float(np.quantile(finite, share)) if len(finite) else math.nan


def _compute_disturbed_share(dataset: xr.Dataset) -> float:
    """Compute the share of samples from rounds in which other work used the cores."""
    if "disturbed" not in dataset:
        return math.nan
    return float((dataset["disturbed"] > 0).where(dataset["latency"].notnull()).mean())


def _flatten(values: xr.DataArray) -> Any:
    """Flatten values to one a group, in order."""
    return values.transpose("replicate", ...).values.reshape(values.sizes["replicate"])


def _reshape_rounds(values: xr.DataArray) -> Any:
    """Reshape values to one row of rounds a group, in order."""
    return values.transpose("replicate", ..., "rounds").values.reshape(values.sizes["replicate"], -1)
