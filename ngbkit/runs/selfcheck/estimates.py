"""Estimates from groups whose true speed-up is 1, on the logarithms of their paired ratios."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ngbkit.device.timing import intervals
from ngbkit.metrics import arrays

Floats = NDArray[np.floating[Any]]

# The median absolute deviation of a normal distribution times this is its standard deviation.
_MAD = 1.4826
# The estimate of a group is clipped at this many standard deviations; the mean square of a normal variate is then less.
_OUTLYING = 3.0
_CLIPPED_SQUARE = 0.9950
_SPLITS, _HALVINGS = 100, 60
# The degrees of freedom of a group's variance over the square root of its rounds: see `gates.regressions` of metrics.
_DEGREES = 4.5


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
    variances = np.array([_estimate_variance(ratios, generator) for ratios in groups])
    degrees = _DEGREES * np.sqrt([len(ratios) for ratios in groups])
    low, high = 0.0, float(squares.max())
    if _average_squares(squares, variances, degrees) <= _CLIPPED_SQUARE:
        return 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_low = _average_squares(squares, variances + middle, degrees) > _CLIPPED_SQUARE
        low, high = (middle, high) if is_low else (low, middle)
    return math.sqrt(high)


def estimate_round_sd(groups: Sequence[Floats]) -> float:
    """Estimate the robust standard deviation from round to round within a group: the median over the groups."""
    return float(np.median([_MAD * np.median(np.abs(ratios - np.median(ratios))) for ratios in groups]))


def estimate_drift(latency: ArrayLike) -> float:
    """Estimate how far the latency of one block moved over the groups: its 90th percentile over its 10th, less 1."""
    low, high = np.quantile(np.asarray(latency, float), [0.1, 0.9])
    return float(high / low - 1)


def estimate_share(hits: int, total: int, level: float = 0.95) -> tuple[float, float, float]:
    """Estimate a share, with its interval (Wilson's score interval for a binomial share).

    >>> [round(value, 3) for value in estimate_share(190, 200)]
    [0.95, 0.91, 0.973]
    """
    if not total:
        return math.nan, math.nan, math.nan
    z = NormalDist().inv_cdf(0.5 + level / 2)
    rate, weight = hits / total, z * z / total
    center = (rate + weight / 2) / (1 + weight)
    half = z * math.sqrt(rate * (1 - rate) / total + weight / (4 * total)) / (1 + weight)
    return rate, max(0.0, center - half), min(1.0, center + half)


def _estimate_variance(ratios: Floats, generator: np.random.Generator) -> float:
    """Estimate the variance of the median of a group's rounds, as wide as its interval takes it to be."""
    shuffled = generator.permuted(np.tile(ratios, (_SPLITS, 1)), axis=1)
    half = len(ratios) // 2
    differences = np.median(shuffled[:, :half], axis=1) - np.median(shuffled[:, half:], axis=1)
    return float(intervals.estimate_inflation(ratios)) ** 2 * float(np.mean(differences**2)) / 4


def _average_squares(squares: Floats, variances: Floats, degrees: Floats) -> float:
    """Average the squares over their variances, as those of normal scores, clipped."""
    with np.errstate(divide="ignore"):  # rounds without any spread
        scaled = np.divide(squares, variances, out=np.zeros_like(squares), where=squares > 0)
    scores = arrays.to_normal_scores(np.sqrt(scaled), degrees)
    return float(np.mean(np.minimum(scores**2, _OUTLYING**2)))
