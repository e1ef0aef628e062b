"""Predicts the latency of unmeasured trials, and chooses the next: a Gaussian process over the measured ones.

The logarithm of a latency is a sum of these parts: linear in the size of the work; the runtime; the runtime and the
size; the network and its growth; and the network on the runtime. The variance of each part is fitted to the
measurements (Rasmussen and Williams, Gaussian Processes for Machine Learning, chapters 2 and 5). What another model
predicts is a measurement with an error, which all of its predictions share in part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ngbkit.predict.forecast.trial_table import Floats, TrialTable

Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]

# The usual scales, as logarithms of deviations: linear in size, of the runtime, linear in size for the runtime, of the
# runtime and the size, of the network, linear in size for the network, of the network on the runtime, of what errors of
# another model share, noise; and the length along sizes.
_USUAL = np.log([1.0, 0.5, 0.2, 0.3, 0.5, 0.5, 0.15, 0.05, 0.02, 1.5])
# The standard deviation of each around its usual value.
_SPREAD = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.5, 0.5, 0.7])
# The deviation of the common level: wide, so that measurements alone determine it.
_COMMON = 10.0
# On another device, whose level it does not know, another model's errors share more: a level, and one of each runtime.
_LEVEL_ELSEWHERE, _RUNTIME_ELSEWHERE = 10.0, 0.3
# The deviation of a ratio of two networks on another device, and that of a prediction without an interval.
_RATIO_ELSEWHERE, _UNKNOWN = 0.2, 0.3
# The part of the variance of a prediction's error that is the network's, at any size.
_OF_NETWORK = 0.8
# A safety factor: the scales are fitted to the same measurements that they predict.
_CAUTION = 1.7
# The most measurements, and the most predictions, that scales are fitted to: more add time, not accuracy.
_MOST, _MOST_PREDICTED = 250, 80


@dataclass(frozen=True, eq=False)
class Predictions:
    """The predictions of another model for the trials of a table: the logarithms of seconds and of their intervals.

    Each of shape ``(trials,)``, NaN where it predicts nothing; `deviations` are those of its usual errors. With
    `elsewhere`, it predicts other devices: it gives the ratios of latencies, and measurements determine the level.
    """

    logs: Floats
    low: Floats
    high: Floats
    deviations: Floats
    elsewhere: bool = False

    @cached_property
    def indices(self) -> Indices:
        """The rows of the predicted trials."""
        return np.flatnonzero(np.isfinite(self.logs))

    def compute_errors(self, table: TrialTable, rows: Indices) -> tuple[Floats, Floats]:
        """Return the covariance of the errors of these trials, and what it has more by each unit of what they share."""
        deviations = np.where(np.isfinite(self.deviations), self.deviations, _UNKNOWN)[rows]
        deviations = np.hypot(deviations, _RATIO_ELSEWHERE if self.elsewhere else 0.0)
        same = _compare(table.compiler, rows, rows) * _compare(table.device, rows, rows)
        by_network = _OF_NETWORK * same * _compare(table.network, rows, rows) * np.outer(deviations, deviations)
        errors = by_network + np.diag((1 - _OF_NETWORK) * deviations**2)
        if self.elsewhere:
            errors += _LEVEL_ELSEWHERE**2 + _RUNTIME_ELSEWHERE**2 * same
        return np.asarray(errors), np.asarray(1.0 + same)


@dataclass(frozen=True, eq=False)
class Surrogate:
    """Latencies of all trials of a table, conditioned on the measured ones.

    `indices` and `logs` are the rows of the measured trials and the logarithms of their seconds; `predictions` are
    those of another model.
    """

    table: TrialTable
    indices: Indices
    logs: Floats
    predictions: Predictions | None = None

    @cached_property
    def _sample(self) -> _Observations:
        """The measurements and the predictions, or a random part of each."""
        random = np.random.default_rng(0)
        measured, predicted = np.arange(len(self.indices)), self._predicted_indices
        if len(measured) > _MOST:
            measured = random.permutation(measured)[:_MOST]
        if len(predicted) > _MOST_PREDICTED:
            predicted = random.permutation(predicted)[:_MOST_PREDICTED]
        return self._observe(measured, predicted)

    @property
    def _sampled_predictions(self) -> Indices:
        return self._sample.rows[min(len(self.indices), _MOST) :]

    @property
    def _predicted_indices(self) -> Indices:
        return np.empty(0, dtype=np.intp) if self.predictions is None else self.predictions.indices

    def _observe(self, measured: Indices, predicted: Indices) -> _Observations:
        """Return some of the measurements, by their positions, and the predictions for some rows."""
        rows, logs = np.concatenate([self.indices[measured], predicted]), self.logs[measured]
        errors, shared = (np.zeros((len(rows), len(rows))) for _ in range(2))
        if self.predictions is not None and len(predicted):
            logs = np.concatenate([logs, self.predictions.logs[predicted]])
            block = slice(len(measured), None)
            errors[block, block], shared[block, block] = self.predictions.compute_errors(self.table, predicted)
        return _Observations(rows=rows, logs=logs, errors=errors, shared=shared)

    @cached_property
    def _scales(self) -> Floats:
        """The logarithms of the deviation of each part: the maximum a posteriori estimate."""
        from scipy.optimize import minimize

        sample = self._sample
        if len(sample.rows) < 3:
            return _USUAL
        parts = _compute_parts(self.table, sample.rows, sample.rows)

        def compute_loss(scales: Floats) -> float:
            factor = np.linalg.cholesky(_COMMON**2 + _combine_parts(parts, scales) + sample.compute_errors(scales))
            white = np.linalg.solve(factor, sample.logs)
            deviations = ((scales - _USUAL) / _SPREAD) ** 2
            return float(0.5 * white @ white + np.log(np.diag(factor)).sum() + 0.5 * deviations.sum())

        bounds = [(each - 4, each + 3) for each in _USUAL]
        result = minimize(compute_loss, _USUAL, method="L-BFGS-B", bounds=bounds, options={"maxiter": 40})
        return np.asarray(result.x)

    @property
    def noise(self) -> float:
        """The variance of a repeated measurement."""
        return _compute_noise(self._scales)

    def _solve(self, observations: _Observations) -> tuple[Floats, Floats]:
        """Return the Cholesky factor of the covariance of observations, and their weights."""
        covariance = self._compute_covariance(observations.rows, observations.rows)
        factor = np.linalg.cholesky(covariance + observations.compute_errors(self._scales))
        weights = np.linalg.solve(factor.T, np.linalg.solve(factor, observations.logs))
        return np.asarray(factor, float), np.asarray(weights, float)

    def predict(self, indices: Indices) -> tuple[Floats, Floats]:
        """Return the expected logarithm of the seconds of trials, and its standard deviation."""
        mean, explained = self._condition(indices)
        variance = np.diag(self._compute_covariance(indices, indices))
        return mean, self._inflation * np.sqrt(np.maximum(variance - (explained**2).sum(axis=0), 0.0) + self.noise)

    @cached_property
    def _inflation(self) -> float:
        """The factor by which deviations are too small in leave-one-out predictions of measurements, at least 1.

        The scales are fitted to few measurements, and taken as exact.
        """
        count = len(self.indices)
        if count < 3:
            return 1.0
        factor, weights = self._solve(self._observe(np.arange(count), self._sampled_predictions))
        inverse = np.diag(np.linalg.solve(factor.T, np.linalg.solve(factor, np.eye(len(factor)))))
        return max(1.0, float(np.sqrt(np.mean((weights**2 / inverse)[:count]))) * _CAUTION)

    def predict_joint(self, indices: Indices) -> tuple[Floats, Floats]:
        """Return the expected logarithms of the seconds of trials, and their covariance without noise."""
        mean, explained = self._condition(indices)
        return mean, self._compute_covariance(indices, indices) - explained.T @ explained

    def _condition(self, indices: Indices) -> tuple[Floats, Floats]:
        """Condition trials on all measurements, on their own predictions, and on those of the sample."""
        predicted = np.union1d(self._sampled_predictions, np.intersect1d(indices, self._predicted_indices))
        observations = self._observe(np.arange(len(self.indices)), predicted.astype(np.intp))
        across = self._compute_covariance(observations.rows, indices)
        factor, weights = self._solve(observations)
        return across.T @ weights, np.asarray(np.linalg.solve(factor, across), float)

    def _compute_covariance(self, left: Indices, right: Indices) -> Floats:
        return _COMMON**2 + _combine_parts(_compute_parts(self.table, left, right), self._scales)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Observations:
    """Measurements, and predictions after them: rows of the table, logarithms, and their errors."""

    rows: Indices
    logs: Floats
    # The covariance of the errors of predictions, and what it has more by each unit of what these errors share.
    errors: Floats
    shared: Floats

    def compute_errors(self, scales: Floats) -> Floats:
        """Return the covariance of all errors."""
        return np.asarray(
            self.errors + self.shared * np.exp(2 * scales[-3]) + np.eye(len(self.rows)) * _compute_noise(scales)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """The similarity of two sets of trials, by part; each of shape ``(left, right)``."""

    linear: Floats
    distance: Floats
    runtime: Floats
    network: Floats


def _compute_parts(table: TrialTable, left: Indices, right: Indices) -> _Parts:
    rows, columns = table.numbers[left], table.numbers[right]
    width = max(1, rows.shape[1])
    products = rows @ columns.T
    distance = (rows**2).sum(axis=1)[:, None] + (columns**2).sum(axis=1)[None, :] - 2 * products
    compiler, device = _compare(table.compiler, left, right), _compare(table.device, left, right)
    # The same compiler on another device is partly similar, and so is another compiler on the same device.
    runtime = compiler * device * 0.6 + compiler * 0.2 + device * 0.2
    return _Parts(
        linear=products / width,
        distance=np.maximum(distance, 0) / width,
        runtime=runtime,
        network=_compare(table.network, left, right),
    )


def _compare(codes: NDArray[np.intp], left: Indices, right: Indices) -> Floats:
    return np.asarray(codes[left][:, None] == codes[right][None, :], dtype=float)


def _combine_parts(parts: _Parts, scales: Floats) -> Floats:
    linear, runtime, runtime_linear, sized, network, network_linear, interaction, *_ = np.exp(2 * scales)
    near = np.exp(-0.5 * parts.distance / np.exp(2 * scales[-1]))
    covariance = linear * parts.linear + runtime * parts.runtime
    covariance = covariance + parts.runtime * (runtime_linear * parts.linear + sized * near)
    covariance = covariance + parts.network * (
        network_linear * parts.linear + near * (network + interaction * parts.runtime)
    )
    return np.asarray(covariance)


def _compute_noise(scales: Floats) -> float:
    # The floor: repeated measurements differ by more than a tenth of a per cent.
    return float(np.exp(2 * scales[-2])) + 1e-6


def build_surrogate(
    table: TrialTable, measurements: Sequence[tuple[int, float]], predictions: Predictions | None = None
) -> Surrogate:
    """Build a surrogate from pairs of a row of the table and its measured seconds."""
    indices = np.array([index for index, _ in measurements], dtype=np.intp)
    return Surrogate(table, indices, np.log([seconds for _, seconds in measurements]), predictions)


# Where no decision depends on a trial, the most uncertain trial counts, for the sake of the predictions.
_CURIOUS = 1e-3


def choose(
    surrogate: Surrogate, indices: Indices, groups: NDArray[np.intp], available: Flags, worth: Floats, count: int
) -> list[int]:
    """Return the positions in `indices` of up to `count` trials to measure next, the most informative first.

    `indices` are rows of the surrogate's table, `groups` the group of each; `available` excludes trials with a record.
    `worth` weighs each trial: its probability of a result, over its expected seconds; it is 0 for a compiler that does
    not work, which is then the best of no group. The value of a trial is the time that its result is expected to save
    when the best compiler of every group is chosen (the knowledge gradient: Frazier, Powell and Dayanik, A
    knowledge-gradient policy for sequential information collection, SIAM Journal on Control and Optimization 47, 2008).
    """
    from scipy.special import ndtr

    mean, covariance = surrogate.predict_joint(indices)
    best, rivals = _build_contrasts(mean, groups, worth > 0)
    chosen: list[int] = []
    free = available & (worth > 0)
    for _ in range(min(count, int(free.sum()))):
        differences = covariance[best] - covariance[rivals]
        variance = np.maximum(np.diag(covariance), 0) + surrogate.noise
        shift = np.abs(differences[:, free]) / np.sqrt(variance[free])
        gap = np.abs(mean[best] - mean[rivals])[:, None]
        ratio = gap / np.maximum(shift, 1e-12)
        gain = shift * np.exp(-0.5 * ratio**2) / np.sqrt(2 * np.pi) - gap * ndtr(-ratio)
        value = (gain.sum(axis=0) + _CURIOUS * np.sqrt(variance[free])) * worth[free]
        index = int(np.flatnonzero(free)[int(np.argmax(value))])
        chosen.append(index)
        free[index] = False
        # Its result is unknown, but not by how much it reduces the uncertainty.
        covariance = covariance - np.outer(covariance[index], covariance[index]) / variance[index]
    return chosen


def spread_groups(numbers: Floats, groups: NDArray[np.intp], count: int) -> list[int]:
    """Return dissimilar groups to start with: the most central, then always the farthest from those chosen."""
    names = np.unique(groups)
    centres = np.stack([numbers[groups == name].mean(axis=0) for name in names])
    chosen = [int(np.argmin(((centres - centres.mean(axis=0)) ** 2).sum(axis=1)))]
    while len(chosen) < min(count, len(names)):
        distances = ((centres[:, None] - centres[chosen][None]) ** 2).sum(axis=2).min(axis=1)
        distances[chosen] = -1.0
        chosen.append(int(np.argmax(distances)))
    return [int(names[index]) for index in chosen]


def _build_contrasts(mean: Floats, groups: NDArray[np.intp], possible: Flags) -> tuple[Indices, Indices]:
    """Pair the best trial of each group so far with each other trial of the group."""
    best, rivals = [], []
    for group in np.unique(groups):
        members = np.flatnonzero((groups == group) & possible)
        if len(members) > 1:
            best_member = int(members[np.argmin(mean[members])])
            best += [best_member] * (len(members) - 1)
            rivals += [int(member) for member in members if member != best_member]
    return np.array(best, dtype=np.intp), np.array(rivals, dtype=np.intp)
