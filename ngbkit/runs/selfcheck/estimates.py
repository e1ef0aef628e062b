"""What is estimated from groups whose true speed-up is 1: arithmetic on the logarithms of their paired ratios."""

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
# A group further out than this many robust standard deviations counts as one that is just as far.
_OUTLYING = 3.0
_SPLITS = 100


def process_sd(groups: Sequence[Floats], seed: int = 0) -> float:
    """The standard deviation, between two processes that run the same thing, of the log ratio of their latencies.

    Both halves of a group's rounds share what its two processes differ by, and nothing else: the mean product of their
    medians, over many random halves, is the variance between processes. It is that of the groups' estimates (about 0,
    which is the truth) less the mean of their own. Outlying groups are drawn in, and a negative variance counts as 0.

    Parameters
    ----------
    groups
        For each group the logarithms of its ratios, one a round. Groups of fewer than two rounds tell nothing.
    seed
        Seeds the halves.
    """
    generator = np.random.default_rng(seed)
    told = [ratios for ratios in groups if len(ratios) > 1]
    if not told:
        return 0.0
    products = np.array([_product_of_halves(ratios, generator) for ratios in told])
    offsets = np.array([np.median(ratios) for ratios in told])
    limit = _OUTLYING * _MAD * float(np.median(np.abs(offsets)))
    drawn_in = np.minimum(1.0, limit / np.maximum(np.abs(offsets), np.finfo(float).tiny))
    return math.sqrt(max(0.0, float(np.mean(products * drawn_in**2))))


def round_sd(groups: Sequence[Floats]) -> float:
    """The standard deviation from round to round within a group, robust; the median over the groups."""
    return float(np.median([_MAD * np.median(np.abs(ratios - np.median(ratios))) for ratios in groups]))


def drift(latency: ArrayLike) -> float:
    """How far the same thing's latency moved from group to group: its 90th percentile over its 10th, less 1."""
    low, high = np.quantile(np.asarray(latency, float), [0.1, 0.9])
    return float(high / low - 1)


def share(hits: int, of: int, level: float = 0.95) -> tuple[float, float, float]:
    """A share with its interval (Wilson's score interval for a binomial share).

    >>> [round(value, 3) for value in share(190, 200)]
    [0.95, 0.91, 0.973]
    """
    if not of:
        return math.nan, math.nan, math.nan
    z = NormalDist().inv_cdf(0.5 + level / 2)
    rate, weight = hits / of, z * z / of
    center = (rate + weight / 2) / (1 + weight)
    half = z * math.sqrt(rate * (1 - rate) / of + weight / (4 * of)) / (1 + weight)
    return rate, max(0.0, center - half), min(1.0, center + half)


def _product_of_halves(ratios: Floats, generator: np.random.Generator) -> float:
    shuffled = generator.permuted(np.tile(ratios, (_SPLITS, 1)), axis=1)
    half = len(ratios) // 2
    return float(np.mean(np.median(shuffled[:, :half], axis=1) * np.median(shuffled[:, half:], axis=1)))
