"""Identity against identity: the sweep that measures it, and what its groups say about an interval's worth.

The intervals are those that anyone gets from ``ds.ngb.speedup(ci=0.95)``, so that it is these whose coverage is shown.
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

import ngbkit.figures.accessor  # noqa: F401  gives a dataset its `ds.ngb`
from ngbkit.dataset.storage import Data
from ngbkit.errors import UsageError
from ngbkit.metrics import arrays
from ngbkit.runs.selfcheck import estimates
from ngbkit.runs.selfcheck.estimates import Floats
from ngbkit.runs.selfcheck.record import LEVEL, Noise
from ngbkit.sweep import validation
from ngbkit.sweep.grid import Sweep
from ngbkit.sweep.trials import BASELINE
from ngbkit.workloads import cell

COPY = 'identity{"copy":1}'
NETWORK = "block"
# The allowance for processes that a group is judged with comes from the others, left out in so many parts.
_FOLDS = 10
# A smallest speed-up is one that is told from 1 in this share of the groups.
_TOLD = 0.9


def plan(groups: int, *, hog: bool = False, **settings: Any) -> Sweep:
    """The sweep of a noise check.

    Parameters
    ----------
    groups
        Groups of two processes each, 2 or more; with `hog` an even number, or one more.
    hog
        Whether every other group has a busy process beside it.
    **settings
        Of `Sweep`: ``repeats``, ``precision``, ``threads``, ``devices``, ….
    """
    count = validation.count("groups", groups, least=2)
    source = (package_files.files("ngbkit.runs.selfcheck") / "block.py").read_text(encoding="utf-8")
    factors: dict[str, Any] = {"replicate": range(-(-count // 2) if hog else count)}
    if hog:
        factors["hog"] = (0, 1)
    workloads = cell.from_source(source, name=NETWORK, filename="ngbkit/selfcheck/block.py")
    return Sweep(workloads, compilers=(BASELINE, COPY), factors=factors, **settings)


def read(data: Data) -> tuple[Noise, Noise | None]:
    """What the dataset of such a sweep shows: of its quiet groups, and of those beside a busy process, if any.

    Raises
    ------
    UsageError
        It is of another sweep, or no group of it was measured.
    """
    if not isinstance(data, xr.Dataset) or "replicate" not in data.dims or COPY not in data["compiler"]:
        raise UsageError("this run is no self-check; `ngbkit selfcheck` starts one, and `ngbkit runs` lists them all.")
    if "hog" not in data.dims:
        return _read(data, None), None
    quiet = _read(data.sel(hog=0, drop=True), None)
    return quiet, _read(data.sel(hog=1, drop=True), quiet.process_sd)


def _read(dataset: xr.Dataset, allowance: float | None) -> Noise:
    """The figures of some groups; without an `allowance` for processes from elsewhere, each gets that of the others."""
    good = _flat((dataset["status"] == "ok").all("compiler"))
    pending = _flat((dataset["status"] == "pending").any("compiler"))
    if not good.any():
        reason = next((str(text) for text in dataset["error"].values.ravel() if text), "nothing was measured yet")
        raise UsageError(f"no group of this self-check gave a measurement: {reason}.")
    found = dataset.isel(replicate=np.flatnonzero(good))
    medians = xr.apply_ufunc(
        arrays.round_medians,
        found["latency"],
        found["round"],
        input_core_dims=[["repeat"], ["repeat"]],
        output_core_dims=[["rounds"]],
    )
    baseline, copy = (_rows(medians.sel(compiler=label)) for label in (BASELINE, COPY))
    groups = [row[np.isfinite(row)] for row in np.log(baseline / copy)]
    low, high = _intervals(found, 0.0)
    inside = _covers(low, high)
    middle = np.array([np.median(ratios) for ratios in groups])
    process_sd = estimates.process_sd(groups)
    wide_low, wide_high = _wide_intervals(found, groups, allowance)
    covered = _covers(wide_low, wide_high)
    coverage, coverage_low, coverage_high = estimates.share(int(covered.sum()), len(covered), LEVEL)
    samples = _flat(found["latency"].sel(compiler=BASELINE).notnull().sum("repeat"))
    return Noise(
        groups=len(groups),
        failed=int((~good & ~pending).sum()),
        pending=int(pending.sum()),
        rounds=float(np.median([len(ratios) for ratios in groups])),
        samples=float(np.median(samples)),
        noise_floor=_quantile((np.exp(high - middle) - np.exp(low - middle)) / 2, 0.5),
        smallest_speedup=float(np.exp(_quantile(np.concatenate([-wide_low, wide_high]), _TOLD))),
        process_sd=process_sd,
        round_sd=estimates.round_sd(groups),
        drift=estimates.drift(np.nanmedian(baseline, axis=-1)),
        coverage=coverage,
        coverage_low=coverage_low,
        coverage_high=coverage_high,
        coverage_within=estimates.share(int(inside.sum()), len(inside))[0],
        disturbed_share=_disturbed_share(found),
    )


def _intervals(dataset: xr.Dataset, process_sd: float) -> tuple[Floats, Floats]:
    """The logarithms of the ends of each group's interval, as a run gets it whose machine has that `process_sd`."""
    speedups: Any = _allowing(dataset, process_sd).ngb.speedup(ci=LEVEL)
    ends = speedups.sel(compiler=COPY)
    return np.log(_flat(ends["ci_low"])), np.log(_flat(ends["ci_high"]))


def _wide_intervals(dataset: xr.Dataset, groups: Sequence[Floats], allowance: float | None) -> tuple[Floats, Floats]:
    """The same with an allowance for processes: one from elsewhere, or for each group that of the others."""
    if allowance is not None:
        return _intervals(dataset, allowance)
    low, high = np.full(len(groups), np.nan), np.full(len(groups), np.nan)
    for fold in range(min(_FOLDS, len(groups))):
        own = np.arange(fold, len(groups), _FOLDS)
        others = [ratios for at, ratios in enumerate(groups) if at not in set(own.tolist())]
        low[own], high[own] = _intervals(dataset.isel(replicate=own), estimates.process_sd(others))
    return low, high


def _allowing(dataset: xr.Dataset, process_sd: float) -> xr.Dataset:
    """The dataset as if its devices had had a self-check that found `process_sd`, and no other."""
    known = json.loads(dataset.attrs.get("environments", "{}"))
    environments = {
        label: {**known.get(label, {}), "selfcheck": {"process_sd": process_sd}}
        for label in np.atleast_1d(dataset["device"].values).tolist()
    }
    return dataset.assign_attrs(environments=json.dumps(environments))


def _covers(low: Floats, high: Floats) -> NDArray[np.bool_]:
    """Which intervals of log ratios cover 0; one that has no ends, for want of rounds, is left out."""
    there = np.isfinite(low) & np.isfinite(high)
    return (low[there] <= 0) & (high[there] >= 0)


def _quantile(values: Floats, share: float) -> float:
    """Of the values that there are; NaN where there is none, for want of rounds."""
    there = values[np.isfinite(values)]
    return float(np.quantile(there, share)) if len(there) else math.nan


def _disturbed_share(dataset: xr.Dataset) -> float:
    """The share of samples from rounds in which something else had the cores."""
    if "disturbed" not in dataset:
        return math.nan
    there = dataset["latency"].notnull()
    return float((dataset["disturbed"] > 0).where(there).mean())


def _flat(values: xr.DataArray) -> Any:
    """One value a group, in order."""
    return values.transpose("replicate", ...).values.reshape(values.sizes["replicate"])


def _rows(values: xr.DataArray) -> Any:
    """One row of rounds a group, in order."""
    return values.transpose("replicate", ..., "rounds").values.reshape(values.sizes["replicate"], -1)
