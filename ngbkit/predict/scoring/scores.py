"""Scores of predictions: their relative errors, the least that these can be, and whether they rank networks right."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ngbkit.device.timing.normal import LEVEL, find_quantile

Floats = NDArray[np.floating[Any]]


def mape(predicted: ArrayLike, measured: ArrayLike) -> float:
    """The mean absolute relative error; NaN for no measurements."""
    return float(np.mean(_compute_errors(predicted, measured))) if np.size(measured) else float("nan")


def median_error(predicted: ArrayLike, measured: ArrayLike) -> float:
    """The median absolute relative error; NaN for no measurements."""
    return float(np.median(_compute_errors(predicted, measured))) if np.size(measured) else float("nan")


def noise_floor(errors: ArrayLike) -> float:
    """The expected MAPE of a perfect predictor against noisy measurements; NaN if no error is known.

    Parameters
    ----------
    errors
        Standard errors of the logarithms of the measurements; NaN where unknown.

    Notes
    -----
    A measurement is the true latency times ``exp(e)``, and `e` is normal with the standard error `s`. The relative
    error of the true latency is then ``abs(exp(-e) - 1)``, whose mean is ``exp(s**2 / 2) * erf(s / sqrt(2))``, about
    ``0.8 * s``.
    """
    from scipy.special import erf

    deviations = np.asarray(errors, float)
    deviations = deviations[np.isfinite(deviations)]
    if not len(deviations):
        return float("nan")
    return float(np.mean(np.exp(deviations**2 / 2) * erf(deviations / np.sqrt(2))))


def within(predicted: ArrayLike, measured: ArrayLike, share: float = 0.1) -> float:
    """The share of predictions whose relative error is at most `share`; NaN for no measurements."""
    return float(np.mean(_compute_errors(predicted, measured) <= share)) if np.size(measured) else float("nan")


def tau(predicted: ArrayLike, measured: ArrayLike) -> float:
    """Kendall's tau-b: 1 if all pairs have the measured order, -1 if none has; NaN for fewer than two measurements."""
    from scipy.stats import kendalltau

    if np.size(measured) < 2:
        return float("nan")
    return float(kendalltau(np.asarray(predicted), np.asarray(measured)).statistic)


def rho(predicted: ArrayLike, measured: ArrayLike) -> float:
    """Spearman's rank correlation; NaN for fewer than two measurements, or if either side is constant."""
    from scipy.stats import rankdata

    if np.size(measured) < 2:
        return float("nan")
    first, second = (rankdata(values) - (np.size(values) + 1) / 2 for values in (predicted, measured))
    scale = float(np.sqrt((first @ first) * (second @ second)))
    return float(first @ second) / scale if scale else float("nan")


def sign_accuracy(
    predicted: ArrayLike,
    measured: ArrayLike,
    parents: Sequence[str],
    *,
    above: float = 0.03,
    errors: ArrayLike | None = None,
) -> tuple[float, int]:
    """Return the share of significant pairs whose order is predicted, NaN if there is none, and the number of these.

    A pair shares a parent and differs by more than `above` (0.03 is 3 %) plus half the width of a 95 % interval;
    `errors` are the standard errors of the logarithms of the measured seconds. A pair with an unknown error is not
    significant.
    """
    predictions, measurements = np.asarray(predicted, float), np.asarray(measured, float)
    pairs = list_pairs(parents)
    if not pairs:
        return float("nan"), 0
    first, second = np.array(pairs).T
    noise = np.zeros(len(measurements)) if errors is None else np.asarray(errors, float)
    uncertainty = find_quantile(LEVEL) * np.hypot(noise[first], noise[second])
    significant = np.abs(np.log(measurements[first] / measurements[second])) - uncertainty > np.log1p(above)
    correct = np.sign(predictions[first] - predictions[second]) == np.sign(measurements[first] - measurements[second])
    count = int(significant.sum())
    return (float(np.mean(correct[significant])), count) if count else (float("nan"), 0)


def list_pairs(parents: Sequence[str]) -> list[tuple[int, int]]:
    """Return the indices of each two examples of one parent."""
    groups: dict[str, list[int]] = {}
    for index, parent in enumerate(parents):
        groups.setdefault(parent, []).append(index)
    return [pair for group in groups.values() for pair in combinations(group, 2)]


def _compute_errors(predicted: ArrayLike, measured: ArrayLike) -> Floats:
    measurements = np.asarray(measured, float)
    return np.asarray(np.abs(np.asarray(predicted, float) / measurements - 1))
