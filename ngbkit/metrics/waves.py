"""Waves: the rounds of one set of processes, and what the next set of processes changes.

Each time that a group is measured again its columns have new processes, whose rounds have numbers of their own. How
far the waves of a trial differ beyond what their rounds explain is measured, in place of what is assumed of processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from functools import reduce as fold

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ngbkit.device.timing import correlation
from ngbkit.metrics import arrays
from ngbkit.metrics.statistics import Floats, widen_for_freedom

# The variance of a median over that of a mean.
_MEDIAN = math.pi / 2
# What was assumed before counts as many degrees of freedom, and all that is known but the column's own as many at most.
_ASSUMED, _BORROWED = 1.0, 4.0
# A wave with fewer rounds tells nothing of the spread of its own.
_FEWEST_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Spread:
    """The variance between waves of the logarithm of a ratio, and the degrees of freedom of this estimate."""

    variance: float
    freedom: float
    within: float = 0.0  # the variance of a wave by its rounds, which is taken off

    def discount(self, least: float) -> Spread:
        """Count the degrees of freedom of what is left when rounds are taken off, of a variance of `least` or more."""
        expected = max(self.variance, least)
        return Spread(self.variance, self.freedom * (expected / (expected + self.within)) ** 2)

    def combine(self, other: Spread) -> Spread:
        """Combine it with another estimate of the same variance, or of one like it."""
        freedom = self.freedom + other.freedom
        parts = self.freedom * self.variance + other.freedom * other.variance
        return Spread(parts / freedom if freedom else 0.0, freedom)

    def limit(self, freedom: float) -> Spread:
        """Limit how much it tells of another column."""
        return Spread(self.variance, min(self.freedom, freedom))

    def to_sd(self) -> float:
        """Convert it to a standard deviation, as wide as Student's t of so few waves.

        What was assumed has no degrees of freedom in truth, and is not widened beyond those of some waves.
        """
        return widen_for_freedom(math.sqrt(self.variance), max(self.freedom, _BORROWED))


def combine(spreads: Mapping[str, Spread], assumed: Mapping[str, float]) -> dict[str, float]:
    """Combine the spread of each column with what was assumed and, up to a limit, with that of other columns."""
    usable = {name: each.discount(assumed[name] ** 2) for name, each in spreads.items() if each.freedom}
    combined = {}
    for name, each in usable.items():
        others = fold(Spread.combine, (other for key, other in usable.items() if key != name), Spread(0.0, 0.0))
        combined[name] = each.combine(Spread(assumed[name] ** 2, _ASSUMED).combine(others).limit(_BORROWED)).to_sd()
    return combined


def center(medians: xr.DataArray, waves: NDArray[np.intp]) -> tuple[xr.DataArray, xr.DataArray]:
    """Move the waves of each trial to their mean, so that its rounds spread as those of one process do.

    Returned with the number of waves of each trial, at least 1; one with fewer rounds counts less. A wave that not all
    of the measured columns of a group have stays where it is, and does not count: what the others share with it is the
    pace of its minutes.
    """
    if not waves.max(initial=0):
        return medians, xr.DataArray(1.0)
    logs: xr.DataArray = xr.apply_ufunc(np.log, medians.transpose(..., "rounds"))
    parts: list[xr.DataArray] = [
        xr.apply_ufunc(
            partial(_by_wave, reduce=reduce_rows, waves=waves),
            logs,
            input_core_dims=[["rounds"]],
            output_core_dims=[["wave"]],
        )
        for reduce_rows in (arrays.median, _count)
    ]
    middles, rounds = parts
    shared = rounds > 0
    if "compiler" in shared.dims:
        shared = (shared | ~shared.any("wave")).all("compiler")
    middles, weights = middles.where(shared), rounds.where(shared, 0.0)
    total = weights.sum("wave")
    mean = (middles * weights).sum("wave") / total.where(total > 0)
    shifts = (mean - middles).fillna(0.0).transpose(*logs.dims[:-1], "wave").values[..., waves]
    counts: xr.DataArray = (total**2 / (weights**2).sum("wave").where(total > 0)).fillna(1.0)
    moved: xr.DataArray = xr.apply_ufunc(np.exp, logs + shifts)
    return moved.transpose(*medians.dims), counts


def estimate_spread(log_ratios: Floats, waves: NDArray[np.intp], pool: Floats) -> Spread:
    """Estimate how far the waves of series, ``(series, rounds)``, differ beyond what their rounds explain.

    `pool` is what series tell of the correlation of their rounds. All series are of one column, and count alike.
    """
    middles = _by_wave(log_ratios, arrays.median, waves)
    within = np.stack(
        [_estimate_variances(log_ratios[:, waves == wave], pool) for wave in range(middles.shape[-1])], axis=-1
    )
    usable = ~np.isnan(middles) & ~np.isnan(within)
    freedom = np.maximum(usable.sum(axis=-1) - 1, 0)
    rows = freedom > 0
    if not rows.any():
        return Spread(0.0, 0.0)
    middles, within = (np.where(usable, each, np.nan)[rows] for each in (middles, within))
    weights = freedom[rows] / freedom[rows].sum()
    of_rounds = float(weights @ np.nanmean(within, axis=-1))
    variance = float(weights @ np.nanvar(middles, axis=-1, ddof=1)) - of_rounds
    return Spread(max(0.0, variance), float(freedom[rows].sum()), of_rounds)


def _by_wave(logs: Floats, reduce: Callable[[Floats], Floats], waves: NDArray[np.intp]) -> Floats:
    """Reduce the rounds of each wave, ``(..., waves)``."""
    return np.stack([reduce(logs[..., waves == wave]) for wave in range(int(waves.max(initial=0)) + 1)], axis=-1)


def _count(logs: Floats) -> Floats:
    return np.asarray(np.count_nonzero(~np.isnan(logs), axis=-1), float)


def _estimate_variances(logs: Floats, pool: Floats) -> Floats:
    """Estimate the variance of the median of each row; NaN where it has few rounds."""
    counts = _count(logs)
    rows = counts >= _FEWEST_ROUNDS
    variances = np.full(len(logs), np.nan)
    if rows.any():
        inflation = correlation.estimate_inflation(logs[rows], pool)
        variances[rows] = _MEDIAN * np.nanvar(logs[rows], axis=-1, ddof=1) / counts[rows] * inflation**2
    return variances
