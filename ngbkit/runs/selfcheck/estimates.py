"""Estimates from groups whose true speed-up is 1, on the logarithms of their paired ratios."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.floating[Any]]

# The median absolute deviation of a normal distribution times this is its standard deviation.
_MAD = 1.4826
# The estimate of a group is clipped at this many robust standard deviations.
_OUTLYING = 3.0
_SPLITS = 100


def estimate_process_sd(groups: Sequence[Floats], seed: int = 0) -> float:
    """Estimate the standard deviation, between two identical processes, of the log ratio of their latencies.

    `groups` has an array of log ratios a group, one a round; groups of fewer than two rounds are ignored. Both halves
    of a group's rounds share only the offset between its two processes, so the mean product of their medians, over many
    random halves, is the variance between processes: the variance of the groups' estimates about the true value 0, less
    the mean variance within groups. Outlying groups are clipped, and a negative variance counts as 0.
    """
    generator = np.random.default_rng(seed)
    groups = [ratios for ratios in groups if len(ratios) > 1]
    if not groups:
        return 0.0
    products = np.array([_multiply_halves(ratios, generator) for ratios in groups])
    offsets = np.array([np.median(ratios) for ratios in groups])
    limit = _OUTLYING * _MAD * float(np.median(np.abs(offsets)))
    clipping = np.minimum(1.0, limit / np.maximum(np.abs(offsets), np.finfo(float).tiny))
    return math.sqrt(max(0.0, float(np.mean(products * clipping**2))))


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


def _multiply_halves(ratios: Floats, generator: np.random.Generator) -> float:
    shuffled = generator.permuted(np.tile(ratios, (_SPLITS, 1)), axis=1)
    half = len(ratios) // 2
    return float(np.mean(np.median(shuffled[:, :half], axis=1) * np.median(shuffled[:, half:], axis=1)))
