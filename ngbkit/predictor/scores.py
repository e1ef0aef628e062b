"""How good predictions are: by how much they are off, and whether they put things in the right order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.floating[Any]]


def mape(predicted: ArrayLike, measured: ArrayLike) -> float:
    """The mean absolute error, as a share of what was measured; NaN of nothing."""
    return float(np.mean(_errors(predicted, measured))) if np.size(measured) else float("nan")


def within(predicted: ArrayLike, measured: ArrayLike, share: float = 0.1) -> float:
    """The share of predictions that are off by at most `share` of what was measured; NaN of nothing."""
    return float(np.mean(_errors(predicted, measured) <= share)) if np.size(measured) else float("nan")


def tau(predicted: ArrayLike, measured: ArrayLike) -> float:
    """Kendall's tau-b: 1 where all pairs are in the measured order, -1 where none is; NaN of fewer than two."""
    from scipy.stats import kendalltau

    if np.size(measured) < 2:
        return float("nan")
    return float(kendalltau(np.asarray(predicted), np.asarray(measured)).statistic)


def sign_accuracy(
    predicted: ArrayLike,
    measured: ArrayLike,
    parents: Sequence[str],
    *,
    above: float = 0.03,
    errors: ArrayLike | None = None,
) -> tuple[float, int]:
    """Of pairs of one parent whose latencies really differ, the share whose order is predicted.

    Parameters
    ----------
    predicted, measured
        Seconds, one an example.
    parents
        What each example is a variant of.
    above
        The least gain that counts as a real one: 0.03 is 3 %.
    errors
        Standard errors of the logarithms of what was measured: a gain has to be above that by 1.96 of its own to count.

    Returns
    -------
    tuple
        The share (NaN where there is no such pair), and the number of pairs.
    """
    guess, truth = np.asarray(predicted, float), np.asarray(measured, float)
    pairs = pairs_of(parents)
    if not pairs:
        return float("nan"), 0
    first, second = np.array(pairs).T
    noise = np.zeros(len(truth)) if errors is None else np.nan_to_num(np.asarray(errors, float))
    unsure = 1.96 * np.hypot(noise[first], noise[second])
    real = np.abs(np.log(truth[first] / truth[second])) - unsure > np.log1p(above)
    right = np.sign(guess[first] - guess[second]) == np.sign(truth[first] - truth[second])
    count = int(real.sum())
    return (float(np.mean(right[real])), count) if count else (float("nan"), 0)


def pairs_of(parents: Sequence[str]) -> list[tuple[int, int]]:
    """The places of any two of the same parent."""
    groups: dict[str, list[int]] = {}
    for at, parent in enumerate(parents):
        groups.setdefault(parent, []).append(at)
    return [pair for group in groups.values() for pair in combinations(group, 2)]


def _errors(predicted: ArrayLike, measured: ArrayLike) -> Floats:
    truth = np.asarray(measured, float)
    return np.asarray(np.abs(np.asarray(predicted, float) / truth - 1))
