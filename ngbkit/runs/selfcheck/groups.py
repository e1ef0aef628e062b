"""Groups of a self-check: the speed-up of a compiler over identity in each, round by round and with its interval."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xarray as xr

from ngbkit.dataset.contention import select_samples
from ngbkit.device.timing.normal import LEVEL
from ngbkit.metrics import arrays
from ngbkit.metrics.statistics import Floats
from ngbkit.sweep.column import BASELINE

DETECTED = 0.9
"""The share of the groups in which a distinguishable difference is detected."""

# Cross-validation: the allowance for processes of a group is estimated from the groups of the other folds.
_FOLDS = 10


def find_measured(dataset: xr.Dataset, compiler: str) -> Any:
    """Find the groups, along ``replicate``, in which identity and the compiler were measured."""
    return flatten((dataset["status"].sel(compiler=[BASELINE, compiler]) == "ok").all("compiler"))


def compute_round_medians(dataset: xr.Dataset, *compilers: str) -> list[Any]:
    """Compute the median latency of each round, an array of one row a group for each compiler, NaN-padded."""
    medians: xr.DataArray = xr.apply_ufunc(
        arrays.round_medians,
        *(dataset[name].sel(compiler=list(compilers)) for name in ("latency", "round")),
        input_core_dims=[["repeat"], ["repeat"]],
        output_core_dims=[["rounds"]],
    )
    ordered = medians.transpose("compiler", "replicate", ..., "rounds")
    return list(ordered.values.reshape(len(compilers), ordered.sizes["replicate"], -1))


def compute_log_ratios(dataset: xr.Dataset, compiler: str) -> list[Floats]:
    """Compute the logarithms of the speed-up over identity, one array of rounds a group, of the samples that count."""
    baseline, other = compute_round_medians(select_samples(dataset), BASELINE, compiler)
    return [row[np.isfinite(row)] for row in np.log(baseline / other)]


def compute_intervals(dataset: xr.Dataset, compiler: str, process_sd: float) -> tuple[Floats, Floats]:
    """Compute the logarithms of the ends of each group's interval on a machine of that `process_sd`."""
    columns = dataset.sel(compiler=[BASELINE, compiler])
    speedups: Any = set_process_sd(columns, process_sd).ngb.speedup(ci=LEVEL)
    values = speedups.sel(compiler=compiler)
    return np.log(flatten(values["ci_low"])), np.log(flatten(values["ci_high"]))


def cross_validate_intervals(
    dataset: xr.Dataset, compiler: str, groups: Sequence[Floats], estimate_sd: Callable[[Sequence[Floats]], float]
) -> tuple[Floats, Floats]:
    """Compute intervals whose allowance for processes is estimated from the groups of the other folds."""
    low, high = np.full(len(groups), np.nan), np.full(len(groups), np.nan)
    for first in range(min(_FOLDS, len(groups))):
        fold = np.arange(first, len(groups), _FOLDS)
        others = [ratios for index, ratios in enumerate(groups) if index % _FOLDS != first]
        low[fold], high[fold] = compute_intervals(dataset.isel(replicate=fold), compiler, estimate_sd(others))
    return low, high


def flatten(values: xr.DataArray) -> Any:
    """Flatten values to one a group, in order."""
    return values.transpose("replicate", ...).values.reshape(values.sizes["replicate"])


def set_process_sd(dataset: xr.Dataset, process_sd: float) -> xr.Dataset:
    """Return the dataset as if a self-check of its devices had estimated `process_sd`, and nothing else were known."""
    labels = np.atleast_1d(dataset["device"].values).tolist()
    environments = {label: {"selfcheck": {"process_sd": process_sd}} for label in labels}
    return dataset.assign_attrs(environments=json.dumps(environments))
