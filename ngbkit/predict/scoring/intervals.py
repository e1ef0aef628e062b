"""Intervals of predictions by cross-validation: CV+ of Barber, Candès, Ramdas and Tibshirani (2021).

Each network is in one fold, and a model fitted to the other folds has an error on it. The interval of a new network is
a quantile of what these models predict for it, plus and minus these errors. Of too few networks for such a quantile, it
is that of a normal error, Student's t, or the largest error with the tail of Student's t, whichever is wider.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ngbkit.predict.graphs import Graph
from ngbkit.predict.kinds.base import Floats, Model

Integers = NDArray[np.int64]

FEWEST = 5
"""The fewest networks whose errors tell a deviation."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Calibration:
    """Errors of models, one per fold, on networks that they were not fitted to.

    `errors` are absolute logarithms of prediction over measurement, of shape ``(graphs, runtimes)``, NaN where there is
    none; by graph, `fold` is the index of the model that was not fitted to it, and `network` is shared by its variants.
    """

    models: tuple[Model, ...]
    errors: Floats
    fold: Integers
    network: Integers

    def count_networks(self, runtime: int) -> int:
        """Return the number of networks with an error on a runtime."""
        return len(np.unique(self.network[np.isfinite(self.errors[:, runtime])]))

    def predict(self, graphs: Sequence[Graph], ci: float) -> tuple[Floats, Floats]:
        """Return both ends of the intervals in seconds: each of shape ``(graphs, runtimes)``.

        Of fewer networks than ``ci / (1 - ci)``, 19 for 95 %, it is Student's t of their errors around the mean
        prediction; it is infinite of fewer than five.
        """
        low, high = (np.full((len(graphs), self.errors.shape[1]), end) for end in (0.0, np.inf))
        logs = np.stack([np.log(model.predict(graphs)) for model in self.models]) if self.models else None
        for runtime in range(self.errors.shape[1]):
            finite = np.flatnonzero(np.isfinite(self.errors[:, runtime]))
            if logs is None or not len(finite):
                continue
            predictions, errors = logs[self.fold[finite], :, runtime].T, self.errors[finite, runtime]
            weights = _weigh(self.network[finite])
            if weights.sum() < ci - 1e-9:
                mean = predictions @ weights / weights.sum()
                limit = _compute_normal_limit(errors, weights, ci)
                low[:, runtime], high[:, runtime] = np.exp(mean - limit), np.exp(mean + limit)
                continue
            high[:, runtime] = np.exp(compute_quantiles(predictions + errors, weights, ci))
            low[:, runtime] = np.exp(-compute_quantiles(errors - predictions, weights, ci))
        return low, high

    def compute_error(self, ci: float) -> Floats:
        """Return the error of a logarithm that a share `ci` of networks keep, by runtime; infinity for too few."""
        limits = np.full(self.errors.shape[1], np.inf)
        for runtime, column in enumerate(self.errors.T):
            finite = np.isfinite(column)
            if finite.any():
                weights = _weigh(self.network[finite])
                is_few = weights.sum() < ci - 1e-9
                limits[runtime] = (
                    _compute_normal_limit(column[finite], weights, ci)
                    if is_few
                    else compute_quantiles(column[finite][None], weights, ci)[0]
                )
        return limits


def _weigh(network: Integers) -> Floats:
    """Return the weight of each graph: every network counts the same, and so does one more of infinite error."""
    _, index, counts = np.unique(network, return_inverse=True, return_counts=True)
    return np.asarray(1 / (counts[index] * (len(counts) + 1)))


def _compute_normal_limit(errors: Floats, weights: Floats, ci: float) -> float:
    """Return the error that a share `ci` of networks keep if errors are normal; infinity for fewer than five."""
    from scipy.stats import t

    count = round(weights.sum() / (1 - weights.sum()))  # the weights leave that of one more network
    if count < FEWEST:
        return float("inf")
    deviation = np.sqrt(errors**2 @ weights / weights.sum())
    # One of ten errors may be far larger than a normal one.
    normal = t.ppf((1 + ci) / 2, count) * deviation * np.sqrt(1 + 1 / count)
    return float(max(normal, compute_tail(count, ci) * errors.max()))


def compute_tail(count: int, ci: float) -> float:
    """Return the error that a share `ci` keeps, over the largest of `count` errors.

    Of any distribution, `count` of `count + 1` errors keep the largest of `count`; only beyond this share is the tail
    that of normal errors.
    """
    from scipy.stats import t

    return float(t.ppf((1 + ci) / 2, count) / t.ppf((1 + count / (count + 1)) / 2, count))


def compute_quantiles(values: Floats, weights: Floats, ci: float) -> Floats:
    """Return the least value of each row with a share `ci` of the weight up to it; infinity if there is none."""
    order = np.argsort(values, axis=1)
    ordered = np.take_along_axis(values, order, axis=1)
    reached = np.cumsum(weights[order], axis=1) >= ci - 1e-9
    first = np.where(reached.any(axis=1), reached.argmax(axis=1), -1)
    return np.where(first < 0, np.inf, np.take_along_axis(ordered, first[:, None], axis=1)[:, 0])
