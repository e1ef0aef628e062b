"""The statistics of metrics: Student's t, the binomial distribution, many tests at once, and deviations of groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, ndtr, ndtri, stdtr, stdtrit

from ngbkit.device.timing import correlation, intervals
from ngbkit.device.timing.normal import LEVEL, MAD_SCALE, find_quantile

Floats = NDArray[np.floating[Any]]

DEGREES, FAMILY_DEGREES = 4.5, 3.0
"""The degrees of freedom of the spread of a median over the square root of its rounds, for one trial and for many.

The relative error of the spread of a median falls with the fourth root of the rounds. 4.5 fits the tails of one trial;
with it, any of 40 trials has a false alarm in 7 % of simulated gates of 20 rounds, and with 3.0 in less than 5 %.
"""

# The estimate of a group is clipped at this many standard deviations; the mean square of a normal variate is then less.
_OUTLYING = 3.0
_CLIPPED_SQUARE = 0.9950
_SPLITS, _HALVINGS = 100, 60
# No replicate of a thousand is beyond; the smooth function between two of them is a line.
_SCORES = np.linspace(-6, 6, 2049)
# The generator of a lattice of a thousand points: with it, quantiles of weighted sums of two scores are off by 1.6 % at
# most, with others by up to 15 %, and with random points by 7 %.
_LATTICE = 343
# Rows that are looked up at once: few enough for the cache of a core, which is five times as fast.
_BLOCK = 64


def to_normal_scores(scores: ArrayLike, rounds: ArrayLike, degrees: float = DEGREES) -> Floats:
    """Convert scores of Student's t, of `degrees` times the root of `rounds`, to normal ones of the same tails."""
    values = np.asarray(scores, float)
    tails = stdtr(degrees * np.sqrt(np.asarray(rounds, float)), -np.abs(values))
    return np.asarray(-np.sign(values) * ndtri(tails))


def draw_scores(generator: np.random.Generator, *shape: int, draws: int) -> tuple[Floats, Floats]:
    """Draw two normal scores of each replicate, ``(*shape, draws)``: of the rounds of a row, and of the noise beside.

    Each row has the same pairs of scores, which fill the plane evenly, in an order of its own: so an interval of a row
    has no error of its draws, and that of two rows has little.
    """
    order = generator.permuted(np.tile(np.arange(draws), (*shape, 1)), axis=-1)
    quantiles = ndtri((np.arange(draws) + 0.5) / draws)
    return quantiles[order], quantiles[(order * _LATTICE + _LATTICE // 2) % draws]


def resample_medians(values: ArrayLike, scores: ArrayLike) -> Floats:
    """Resample the medians of ``(..., rounds)``, NaN-padded, into replicates, ``(..., draws)``, from normal `scores`.

    Rows whose scores are correlated have correlated medians. A row without values is NaN; a row with a single value has
    that value in every replicate.
    """
    ordered, count, lead = intervals.sort_rows(values)
    rows_scores = np.asarray(scores, float).reshape(len(ordered), np.shape(scores)[-1])
    replicates = np.full(rows_scores.shape, np.nan)
    for rounds in np.unique(count[count > 0]).tolist():
        rows = np.flatnonzero(count == rounds)
        for block in (rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK)):
            positions = np.interp(rows_scores[block], _SCORES, _tabulate_positions(rounds))
            replicates[block] = intervals.compute_quantiles(ordered[block, :rounds], positions)
    return replicates.reshape(*lead, -1)


@lru_cache(maxsize=256)
def _tabulate_positions(rounds: int) -> Floats:
    """Tabulate the position of a replicate among so many sorted values, in [0, 1], by its normal score."""
    if rounds < 2:
        return np.full(len(_SCORES), 0.5)
    parameter = intervals.compute_shape_parameter(rounds)
    return np.asarray(betaincinv(parameter, parameter, ndtr(_SCORES)))


def bound_ratio(log_ratio: Any, deviation: Any) -> tuple[Any, Any, Any]:
    """Bound a ratio by its logarithm and the deviation of that: the ratio, and both ends of its interval."""
    half = find_quantile(LEVEL) * deviation
    return np.exp(log_ratio), np.exp(log_ratio - half), np.exp(log_ratio + half)


def estimate_deviation(low: ArrayLike, high: ArrayLike, level: float = LEVEL) -> Floats:
    """Estimate the deviation of the logarithm of a ratio from both ends of its interval."""
    return np.asarray(np.log(np.divide(high, low)) / 2 / find_quantile(level))


def widen_for_freedom(deviation: float, freedom: float) -> float:
    """Widen a deviation of so many degrees of freedom: its normal interval is then as wide as Student's t interval."""
    return deviation * float(stdtrit(freedom, (1 + LEVEL) / 2)) / find_quantile(LEVEL)


def adjust_by_holm(p_values: ArrayLike) -> Floats:
    """Adjust p-values by Holm's procedure: those below a level are rejected, with that family-wise error at most."""
    values = np.asarray(p_values, float)
    order = np.argsort(values, kind="stable")
    steps = np.minimum(values[order] * np.arange(len(values), 0, -1), 1.0)
    adjusted = np.empty_like(values)
    adjusted[order] = np.maximum.accumulate(steps) if len(values) else steps
    return adjusted


def adjust_by_false_discovery(p_values: ArrayLike) -> Floats:
    """Adjust p-values by Benjamini and Hochberg (1995): of those below a level, that share is false on average.

    NaN, which says nothing, counts as one that was looked at.
    """
    values = np.nan_to_num(np.asarray(p_values, float), nan=1.0)
    order = np.argsort(values, kind="stable")[::-1]
    steps = values[order] * len(values) / np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum.accumulate(np.minimum(steps, 1.0))
    return np.asarray(adjusted)


def estimate_share(hits: int, total: int, level: float = LEVEL) -> tuple[float, float, float]:
    """Estimate a share, with its interval.

    >>> [round(value, 3) for value in estimate_share(190, 200)]
    [0.95, 0.91, 0.973]
    """
    if not total:
        return math.nan, math.nan, math.nan
    low, high = bound_share(hits / total, total, level)
    return hits / total, float(low), float(high)


def bound_share(share: Any, count: Any, level: float = LEVEL) -> tuple[Any, Any]:
    """Bound shares of so many samples by Wilson's interval: Wilson (1927), J. Am. Stat. Assoc. 22, 209-212."""
    score = find_quantile(level)
    spread = score**2 / count
    middle = (share + spread / 2) / (1 + spread)
    half = score / (1 + spread) * np.sqrt(share * (1 - share) / count + spread / (4 * count))
    return np.clip(middle - half, 0, 1), np.clip(middle + half, 0, 1)


def estimate_robust_sd(values: Floats) -> float:
    """Estimate the standard deviation of normal values from their median absolute deviation."""
    return MAD_SCALE * float(np.median(np.abs(values - np.median(values))))


def estimate_process_sd(groups: Sequence[Floats], seed: int = 0) -> float:
    """Estimate the standard deviation, between two identical processes, of the log ratio of their latencies.

    `groups` has an array of log ratios a group, one a round; groups of fewer than two rounds are ignored. It is what
    the interval of a group lacks: a group's estimate is off the true value 0 by that and by the error of its rounds,
    which resemble each other. Over both variances together, the squares of the estimates are 1 on average (Paule and
    Mandel, 1982, "Consensus values and weighting factors", Journal of Research of the National Bureau of Standards 87).
    The squares of outlying groups are clipped, and a negative variance counts as 0. The variances of few rounds are
    themselves uncertain, so that their quotients are those of Student's t.
    """
    generator = np.random.default_rng(seed)
    groups = [ratios for ratios in groups if len(ratios) > 1]
    if not groups:
        return 0.0
    squares = np.array([float(np.median(ratios)) ** 2 for ratios in groups])
    pool = correlation.pool_series(groups)
    variances = np.array([_estimate_variance(ratios, pool, generator) for ratios in groups])
    rounds = np.array([len(ratios) for ratios in groups])
    low, high = 0.0, float(squares.max())
    if _average_squares(squares, variances, rounds) <= _CLIPPED_SQUARE:
        return 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_low = _average_squares(squares, variances + middle, rounds) > _CLIPPED_SQUARE
        low, high = (middle, high) if is_low else (low, middle)
    return math.sqrt(high)


def _estimate_variance(ratios: Floats, pool: Floats, generator: np.random.Generator) -> float:
    """Estimate the variance of the median of a group's rounds, as wide as its interval takes it to be."""
    shuffled = generator.permuted(np.tile(ratios, (_SPLITS, 1)), axis=1)
    half = len(ratios) // 2
    differences = np.median(shuffled[:, :half], axis=1) - np.median(shuffled[:, half:], axis=1)
    return float(correlation.estimate_inflation(ratios, pool)) ** 2 * float(np.mean(differences**2)) / 4


def _average_squares(squares: Floats, variances: Floats, rounds: NDArray[np.integer[Any]]) -> float:
    """Average the squares over their variances, as those of normal scores, clipped."""
    with np.errstate(divide="ignore"):  # rounds without any spread
        scaled = np.divide(squares, variances, out=np.zeros_like(squares), where=squares > 0)
    return float(np.mean(np.minimum(to_normal_scores(np.sqrt(scaled), rounds) ** 2, _OUTLYING**2)))
