"""Contended samples: which of them an estimate leaves out, and where too few others remain.

Other work does not slow all compilers alike: a runtime whose threads wait for each other at many barriers loses more by
a core that is taken than one with few. Pairing round by round cancels drift, but not this, and an interval over rounds
does not show it. So an estimate uses uncontended samples; a trial with too few of them uses all, and is not conclusive.
Nor is a trial whose outputs could not be compared: its time may be that of a wrong answer.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ngbkit.sweep.records import NOT_CHECKED
from ngbkit.sweep.settling import find_conclusive
from ngbkit.sweep.variables import NO_ROUND

# Latency, round and mark of the samples of trials, of anchors, and of ties.
_SAMPLES = tuple((f"{prefix}latency", f"{prefix}round", f"{prefix}contended") for prefix in ("", "anchor_", "tie_"))


def conclusive(dataset: xr.Dataset) -> xr.DataArray:
    """Return whether the outputs of each trial were checked, in enough uncontended rounds; dims without `repeat`.

    At least 6 rounds and half of all must have an uncontended sample. Otherwise the estimates are of all samples, and
    no interval says how far other work has bent them. Nor is a trial conclusive that has the status ``"not-checked"``.
    A trial without a sample is conclusive.
    """
    return (find_uncontended(dataset) & ~find_unchecked(dataset)).rename("conclusive")


def find_uncontended(dataset: xr.Dataset) -> xr.DataArray:
    """Find the trials with enough uncontended rounds, or without a sample."""
    if not {"contended", "round"} <= set(dataset.variables):
        trials = next(dataset[name] for name in ("throughput", "latency", "status") if name in dataset)
        return xr.ones_like(trials.isel(repeat=0, missing_dims="ignore"), dtype=bool)
    return _check(dataset, "round", "contended")


def find_unchecked(dataset: xr.Dataset) -> xr.DataArray:
    """Find the measured trials whose outputs could not be compared; none in a dataset without statuses."""
    return dataset["status"] == NOT_CHECKED if "status" in dataset else xr.DataArray(False)


def find_conclusive_anchors(dataset: xr.Dataset) -> xr.DataArray:
    """Find which groups have a conclusive anchor, or none."""
    if not {"anchor_contended", "anchor_round"} <= set(dataset.variables):
        return xr.DataArray(True)
    return _check(dataset, "anchor_round", "anchor_contended")


def uncontended(dataset: xr.Dataset) -> xr.Dataset:
    """The dataset without the samples that were taken while other work had cores that the trial needed.

    Their latency becomes NaN and their round -1; ``throughput`` is updated. A dataset without the variable
    ``contended`` is returned unchanged. The metrics do the same wherever enough samples remain: see `conclusive`.
    """
    selected = _select(dataset, every=True)
    if selected is dataset or "throughput" not in dataset:
        return selected
    medians = xr.apply_ufunc(compute_medians, selected["latency"], input_core_dims=[["repeat"]])
    rates = (dataset["batch_size"] / medians).transpose(*dataset["throughput"].dims)
    return selected.assign(throughput=rates.assign_attrs(dataset["throughput"].attrs))


def select_samples(dataset: xr.Dataset) -> xr.Dataset:
    """Select the samples that estimates use: uncontended ones of conclusive trials, and all of the others."""
    return _select(dataset, every=False)


def compute_medians(latency: NDArray[np.floating]) -> NDArray[np.floating]:
    """Compute the median of each row, ``(..., samples)``, NaN-padded; NaN where there is no sample."""
    medians = np.full(latency.shape[:-1], np.nan)
    measured = np.isfinite(latency).any(axis=-1)
    medians[measured] = np.nanmedian(latency[measured], axis=-1)
    return medians


def _check(dataset: xr.Dataset, rounds: str, mark: str) -> xr.DataArray:
    checked: xr.DataArray = xr.apply_ufunc(
        find_conclusive, dataset[rounds], dataset[mark] > 0, input_core_dims=[["repeat"], ["repeat"]]
    )
    return checked


def _select(dataset: xr.Dataset, every: bool) -> xr.Dataset:
    variables = {}
    for latency, rounds, mark in _SAMPLES:
        if {latency, rounds, mark} <= set(dataset.variables) and bool((dataset[mark] > 0).any()):
            excluded = dataset[mark] > 0
            if not every:
                excluded = excluded & _check(dataset, rounds, mark)
            included = ~excluded.transpose(*dataset[mark].dims)
            variables[latency] = dataset[latency].where(included).assign_attrs(dataset[latency].attrs)
            variables[rounds] = dataset[rounds].where(included, NO_ROUND).assign_attrs(dataset[rounds].attrs)
    return dataset.assign(variables) if variables else dataset
