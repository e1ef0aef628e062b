"""How sure a median over rounds is: its bootstrap, its interval, and the rule by which a measurement may stop.

A resample's median is the quantile function of the sample at the median of as many uniforms, which is a beta variate.
So a replicate needs no resampling: it is one look-up in the sorted values. The quantile function is the one that is
linear between the sorted values (Hazen's), not the step function of a plain bootstrap: steps allow only a few
intervals of few rounds, and with 13 the nearest to 95 % covers 91 %. The beta's variance is n / (n - 1) times that of n
uniforms, the small-sample correction of Hesterberg (2015, "What Teachers Should Know About the Bootstrap", section
3.2); his further one, by Student's t, would make an interval of a median too wide (97 % at 10 rounds).

``.venv/bin/python tests/benchmarks/stopping.py fixed`` shows what that comes to: the 95 % interval of a median of log
ratios that are normal, of Student's t with 3 degrees of freedom, or contaminated by a tenth of 1.5-fold ones, covers
its true value in 94 to 96 % of 20,000 repetitions, at 10, 13, 20, 40 and 100 rounds.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.floating[Any]]

LEVEL = 0.95
"""The level at which the stopping rule looks."""

FIRST_LOOK = 10
"""Rounds before the stopping rule looks for the first time."""

GROWTH = 1.15
"""From one look to the next the rounds grow by this factor."""

WIDENING = 1.12
"""By how much the normal quantile of an interval is widened where looking at it stopped the measurement."""

# Rows of a large array take stretches, each from a place of its own, of that many variates.
_POOL = 1 << 16
# Rows that are looked up at once: few enough for the cache of a core, which makes it five times as fast.
_BLOCK = 64
# The quantiles of a beta distribution are read from its distribution function at that many points.
_GRID = 1 << 14


def medians(values: ArrayLike, draws: int, generator: np.random.Generator) -> Floats:
    """Bootstrap replicates of the median over rounds.

    Parameters
    ----------
    values
        Of shape ``(..., rounds)``, in any unit; NaN where a row has fewer rounds than the longest.
    draws
        Replicates.
    generator
        Where chance comes from; the same state gives the same replicates.

    Returns
    -------
    array
        Of shape ``(draws, ...)``, in the unit of `values`. A row without values is NaN; one with a single value is
        that value in every replicate.
    """
    ordered, count, lead = _ordered(values)
    found = np.full((len(ordered), draws), np.nan)
    for rounds in np.unique(count[count > 0]).tolist():
        rows = np.flatnonzero(count == rounds)
        places, starts = _variates(rounds, len(rows), draws, generator)
        lower, share = _between(places, rounds)
        below, shares = sliding_window_view(lower, draws), sliding_window_view(share, draws)
        for block in (slice(at, at + _BLOCK) for at in range(0, len(rows), _BLOCK)):
            first = starts[block]
            found[rows[block]] = _linear(ordered[rows[block], :rounds], below[first], shares[first])
    return np.moveaxis(found.reshape(*lead, draws), -1, 0)


def median_interval(values: ArrayLike, level: float) -> tuple[Floats, Floats]:
    """What `interval` gives of infinitely many replicates of `medians`: the same numbers without chance.

    Parameters
    ----------
    values
        Of shape ``(..., rounds)``, NaN-padded.
    level
        The probability that the interval covers the true median, in (0, 1).

    Returns
    -------
    tuple of array
        Low and high ends, each of shape ``(...)``; NaN where `enough` says that there are too few rounds.
    """
    ordered, count, lead = _ordered(values)
    ends = np.full((len(ordered), 2), np.nan)
    for rounds in np.unique(count[enough(count, level)]).tolist():
        rows = np.flatnonzero(count == rounds)
        quantile = _beta_quantile(rounds, (1 - level) / 2)
        places = np.broadcast_to([quantile, 1 - quantile], (len(rows), 2))
        ends[rows] = _at(ordered[rows], rounds, places)
    return ends[:, 0].reshape(lead), ends[:, 1].reshape(lead)


def interval(draws: ArrayLike, level: float, rounds: ArrayLike | None = None) -> tuple[Floats, Floats]:
    """The percentile interval of replicates.

    Parameters
    ----------
    draws
        Of shape ``(draws, ...)``, as `medians` gives them or computed from such.
    level
        The probability that the interval covers, in (0, 1).
    rounds
        How many rounds the replicates are of, of shape ``(...)``; the fewest where several medians went into one.

    Returns
    -------
    tuple of array
        Low and high ends, each of shape ``(...)``, in the unit of `draws`. NaN where a replicate is NaN, and where
        `enough` says that there are too few rounds.
    """
    replicates = np.moveaxis(np.asarray(draws, float), 0, -1)
    lead, width = replicates.shape[:-1], replicates.shape[-1]
    if not width:
        return np.full(lead, np.nan), np.full(lead, np.nan)
    tails = [_place(tail, width) for tail in ((1 - level) / 2, (1 + level) / 2)]
    needed = {at for lower, _ in tails for at in (lower, min(lower + 1, width - 1))}
    ordered = np.partition(replicates, sorted({*needed, width - 1}), axis=-1)  # NaN sorts last
    known = ~np.isnan(ordered[..., -1])
    if rounds is not None:
        known = known & enough(rounds, level)
    low, high = (np.where(known, _between_two(ordered, lower, share), np.nan) for lower, share in tails)
    return low, high


def enough(rounds: ArrayLike, level: float) -> NDArray[np.bool_]:
    """Whether that many rounds can give an interval of that level.

    Even the one from the lowest to the highest of n values covers the true median with the probability 1 - 2 * 0.5^n
    only: 95 % takes 6 rounds.
    """
    return np.asarray(2.0 * 0.5 ** np.asarray(rounds, float) <= 1 - level)


def adjusted(level: float, looks: float) -> float:
    """The level to ask for, such that an interval covers with the probability `level`.

    A measurement that stops as soon as its interval is narrow enough stops where the interval happens to be too narrow.
    Asking for the level whose normal quantile is `WIDENING` times as far out makes good for it.

    ``.venv/bin/python tests/benchmarks/stopping.py stopped`` follows the rule with round to round deviations of 2, 5
    and 10 %, three distributions and a precision of 1 and 2 %: where it stopped, 94 to 97 % of the intervals cover.
    With a factor of 1 they are 90 to 95 %, with one of 1.1 they are 93.5 to 97 %.

    Parameters
    ----------
    level
        In (0, 1).
    looks
        How often the stopping rule had looked; 0 with fixed repeats, for which `level` itself is right.
    """
    if not looks > 0:
        return level
    normal = NormalDist()
    return 2 * normal.cdf(WIDENING * normal.inv_cdf((1 + level) / 2)) - 1


def next_look(rounds: int) -> int:
    """After how many rounds in all the stopping rule looks next, when `rounds` are done."""
    if rounds < FIRST_LOOK:
        return FIRST_LOOK
    return max(rounds + 1, math.ceil(rounds * GROWTH))


def half_width(log_ratios: ArrayLike, looks: int) -> Floats:
    """Half of (high - low) / median, of ratios at the level of `adjusted`, as the stopping rule sees it.

    Parameters
    ----------
    log_ratios
        Natural logarithms of the paired ratios, of shape ``(..., rounds)``, NaN-padded.
    looks
        How often the rule has looked, this time included; 0 with fixed repeats.

    Returns
    -------
    array
        Of shape ``(...)``, a fraction: 0.01 for 1 %. NaN where there are too few rounds.
    """
    ordered, count, lead = _ordered(log_ratios)
    low, high = median_interval(ordered, adjusted(LEVEL, looks))
    center = np.full(len(ordered), np.nan)
    for rounds in np.unique(count[count > 0]).tolist():
        rows = np.flatnonzero(count == rounds)
        center[rows] = _at(ordered[rows], rounds, np.full((len(rows), 1), 0.5))[:, 0]
    return np.asarray((np.exp(high - center) - np.exp(low - center)) / 2).reshape(lead)


def is_precise(log_ratios: ArrayLike, precision: float, looks: int) -> bool:
    """Whether the intervals of all paired ratios are tight enough to stop.

    Parameters
    ----------
    log_ratios
        As for `half_width`, of shape ``(columns, rounds)``. Leave out columns that failed: a column without rounds is
        never precise. Without any column there is nothing to wait for.
    precision
        The relative half width to reach, as a fraction: 0.01 for 1 %.
    looks
        How often it has looked, this time included: 1 at the first look.
    """
    return bool(np.all(half_width(log_ratios, looks) <= precision))


def _ordered(values: ArrayLike) -> tuple[Floats, NDArray[np.intp], tuple[int, ...]]:
    """Rows of sorted values, NaN last, how many values each has, and the shape of the lead dims."""
    given = np.asarray(values, float)
    ordered = np.sort(given.reshape(-1, given.shape[-1]) if given.size else np.empty((math.prod(given.shape[:-1]), 0)))
    return ordered, np.count_nonzero(~np.isnan(ordered), axis=-1), given.shape[:-1]


def _at(ordered: Floats, rounds: int, places: Floats) -> Floats:
    """The quantile function of sorted rows at `places` in [0, 1], of shape ``(rows, …)``."""
    return _linear(ordered[:, :rounds], *_between(places, rounds))


def _between(places: Floats, rounds: int) -> tuple[NDArray[np.intp], Floats]:
    """Which of that many sorted values is below each place in [0, 1], and how far on the way to the next it is."""
    where = np.clip(places * rounds - 0.5, 0, rounds - 1)
    lower = np.minimum(where.astype(np.intp), max(rounds - 2, 0))
    return lower, where - lower


def _linear(ordered: Floats, lower: NDArray[np.intp], share: Floats) -> Floats:
    """Between the values of each row at `lower` and the next ones."""
    width = ordered.shape[-1]
    flat = lower + (np.arange(len(ordered)) * width)[:, None]
    found: Floats = np.diff(ordered, axis=-1, append=0).take(flat, mode="clip")  # the last is taken with a share of 0
    found *= share
    found += ordered.take(flat, mode="clip")
    return found


def _place(tail: float, width: int) -> tuple[int, float]:
    """`_between` of one quantile of that many replicates."""
    where = min(max(tail * width - 0.5, 0), width - 1)
    lower = min(int(where), max(width - 2, 0))
    return lower, where - lower


def _between_two(ordered: Floats, lower: int, share: float) -> Floats:
    below, above = ordered[..., lower], ordered[..., min(lower + 1, ordered.shape[-1] - 1)]
    apart = np.isfinite(above) & np.isfinite(below)  # of two infinite ones, or one, there is nothing in between
    step = np.subtract(above, below, out=np.zeros_like(below), where=apart)
    return np.asarray(np.where(apart, below + step * share, above if share > 0 else below))


def _shape_parameter(rounds: int) -> float:
    """Of the symmetric beta distribution of a replicate's place.

    The median of n uniforms has the variance 1 / (4 (n + 2)); here it is n / (n - 1) times that.
    """
    return ((rounds + 2) * (rounds - 1) / rounds - 1) / 2


def _variates(rounds: int, rows: int, draws: int, generator: np.random.Generator) -> tuple[Floats, NDArray[np.intp]]:
    """Places in [0, 1] in one long line, and where in it the stretch of each row begins.

    Few rows have stretches of their own. Many share a pool, each from a random place on: two rows that are divided by
    one another, replicate by replicate, have nothing to do with each other then either.
    """
    size = max(_POOL, 64 * draws)
    line = min(rows * draws, size)
    parameter = _shape_parameter(rounds)
    places = generator.beta(parameter, parameter, line) if rounds > 1 else np.full(line, 0.5)
    if rows * draws <= size:
        return places, np.arange(rows) * draws
    return places, generator.integers(0, size - draws + 1, rows)


@lru_cache(maxsize=4096)
def _beta_quantile(rounds: int, probability: float) -> float:
    """Of the distribution of a replicate's place, with a relative error below a thousandth."""
    if rounds < 2:
        return 0.5
    power = _shape_parameter(rounds) - 1
    # In the angle the density is smooth where a shape parameter below 1 makes it infinite at both ends.
    angle = (np.arange(_GRID) + 0.5) * (np.pi / 2 / _GRID)
    log_density = (2 * power + 1) * (np.log(np.sin(angle)) + np.log(np.cos(angle)))
    mass = np.cumsum(np.exp(log_density - log_density.max()))
    edge = float(np.interp(probability, mass / mass[-1], angle + np.pi / 4 / _GRID))
    return math.sin(edge) ** 2
