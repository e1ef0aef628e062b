"""The uncertainty of a quantile of latency, such as the 99th percentile: replicates of it, from samples in rounds.

A bootstrap never exceeds the slowest sample, and so would be sure of a tail that few samples show. Here each replicate
gives the rounds random weights, and what lies beyond the slowest sample a weight of its own, as if one more sample were
there: of n independent samples below a deadline, that yields the probability 1 - q^n that a share q of all calls keeps
it, which is that of order statistics (Hahn and Meeker, "Statistical Intervals", section 5.3); it needs 299 samples for
0.95 at q = 0.99. Rounds are weighted as wholes, since the samples of one resemble each other: the weights are those of
Rubin's Bayesian bootstrap (1981), with the variance of independent rounds. The weight beyond the slowest sample grows
by the design effect (Kish, 1965): n samples that resemble each other know as little of the tail as n / design effect
independent ones.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ngbkit.device.timing import correlation
from ngbkit.metrics import arrays

Floats = NDArray[np.floating[Any]]

# Weights in memory at once: 16 MB.
_WEIGHTS = 1 << 21
_LEAST_SHAPE = 1 / 3
_TAIL = 0.9


def estimate_quantile(latency: Floats, quantile: float) -> float:
    """Estimate a quantile of samples without NaN, by Hazen's rule; at most the slowest of them."""
    return float(np.quantile(latency, quantile, method="hazen")) if len(latency) else math.nan


def draw_quantiles(
    latency: Floats, rounds: NDArray[Any], quantile: float, draws: int, generator: np.random.Generator
) -> Floats:
    """Draw replicates, ``(draws,)``, of a quantile of samples without NaN; infinite beyond the slowest sample.

    NaN with fewer than two rounds. `rounds` numbers the round of each sample.
    """
    _, codes = np.unique(rounds, return_inverse=True)
    count = int(codes.max(initial=-1)) + 1
    if count < 2:
        return np.full(draws, np.nan)
    order = np.argsort(latency, kind="stable")
    ordered, codes_ordered = np.append(latency[order], np.inf), codes[order]
    # The variance of a mean of rounds is that of independent ones: Dirichlet weights of shape 1 have a smaller one.
    shape = max(_LEAST_SHAPE, (count - 2) / count)
    beyond = shape * estimate_design_effect(latency, rounds, quantile)
    places = np.empty(draws, dtype=np.intp)
    step = max(1, _WEIGHTS // len(latency))
    for start in range(0, draws, step):
        size = min(step, draws - start)
        weights = generator.gamma(shape, size=(size, count))[:, codes_ordered]
        reached = np.cumsum(weights, axis=1)
        total = reached[:, -1] + beyond * generator.standard_exponential(size)
        places[start : start + size] = np.count_nonzero(reached < quantile * total[:, None], axis=1)
    replicates = ordered[places]
    return _inflate(replicates, estimate_quantile(latency, quantile), latency, codes)


def estimate_design_effect(latency: Floats, rounds: NDArray[Any], quantile: float) -> float:
    """Estimate how many times the samples are as many as the independent ones that know as much of a tail; at least 1.

    It is 1 + (m - 1) r for m samples a round and an intraclass correlation r of being slow: beyond the quantile, or
    among the slowest tenth, since fewer samples show no correlation.
    """
    _, codes, sizes = np.unique(rounds, return_inverse=True, return_counts=True)
    samples, count = len(latency), len(sizes)
    if count < 2 or samples == count:
        return 1.0
    slow = (latency > np.quantile(latency, min(quantile, _TAIL))).astype(float)
    shares = np.bincount(codes, slow) / sizes
    between = float((sizes * (shares - slow.mean()) ** 2).sum()) / (count - 1)
    within = float(((slow - shares[codes]) ** 2).sum()) / (samples - count)
    width = (samples - float((sizes**2).sum()) / samples) / (count - 1)
    spread = between + (width - 1) * within
    correlation = (between - within) / spread if spread > 0 else 0.0
    return 1 + (width - 1) * min(max(correlation, 0.0), 1.0)


def count_needed_samples(quantile: float, level: float, design_effect: float = 1.0) -> int:
    """Count the samples from which on an interval of that level bounds a quantile from above."""
    return math.ceil(design_effect * math.log((1 - level) / 2) / math.log(quantile))


def _inflate(replicates: Floats, center: float, latency: Floats, codes: NDArray[np.intp]) -> Floats:
    """Widen replicates as the intervals of all metrics are, where rounds resemble the rounds before them."""
    medians = arrays.round_medians(latency, codes)
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = float(correlation.estimate_inflation(np.log(medians)))
    widened: Floats = center * (replicates / center) ** factor if factor > 1 and center > 0 else replicates
    return widened
