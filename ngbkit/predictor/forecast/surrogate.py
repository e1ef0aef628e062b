"""Predicts the latency of unmeasured trials: a Gaussian process over the measured ones.

The logarithm of a latency is a sum of these parts: linear in the size of the work; the runtime; the runtime and the
size; the network and its growth; and the network on the runtime. The variance of each part is fitted to the
measurements (Rasmussen and Williams, Gaussian Processes for Machine Learning, chapters 2 and 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ngbkit.predictor.forecast.trial_table import Floats, TrialTable

Indices = NDArray[np.intp]

# The usual scales, as logarithms of deviations: linear in size, of the runtime, linear in size for the runtime, of the
# runtime and the size, of the network, linear in size for the network, of the network on the runtime, noise; and the
# length along sizes.
_USUAL = np.log([1.0, 0.5, 0.2, 0.3, 0.5, 0.5, 0.15, 0.02, 1.5])
# The standard deviation of each around its usual value.
_SPREAD = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.7])
# The deviation of the common level: wide, so that measurements alone determine it.
_COMMON = 10.0
# The factors of these deviations when another model provides the prior.
_LESS, _COMMON_LESS = np.log([0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.5, 1.0, 1.0]), 0.3
# A safety factor: the scales are fitted to the same measurements that they predict.
_CAUTION = 1.7
# The most measurements that scales are fitted to: more add time, not accuracy.
_MOST = 250


@dataclass(frozen=True, eq=False)
class Surrogate:
    """Latencies of all trials of a table, conditioned on the measured ones.

    `indices` and `logs` are the rows of the measured trials and the logarithms of their seconds; `prior` is the
    logarithm of another model's prediction of every trial, NaN where it has none, or None without such a model. With
    `elsewhere`, it predicts other devices: it gives the ratios of latencies, and measurements determine the level.
    """

    table: TrialTable
    indices: Indices
    logs: Floats
    prior: Floats | None = None
    elsewhere: bool = False

    @cached_property
    def _expected(self) -> Floats:
        """The expected logarithm of every trial before any measurement."""
        if self.prior is None:
            return np.zeros(len(self.table))
        finite = np.isfinite(self.prior)
        mean = float(self.prior[finite].mean()) if finite.any() else 0.0
        expected = self.prior.copy()
        for index in np.flatnonzero(~finite):
            # The prediction for another runtime still shows the size of the network.
            same_network = finite & (self.table.network == self.table.network[index])
            same_size = same_network & (np.abs(self.table.numbers - self.table.numbers[index]).max(axis=1) < 1e-9)
            expected[index] = self.prior[same_size].mean() if same_size.any() else mean
        return expected

    @property
    def _usual_scales(self) -> Floats:
        return np.asarray(_USUAL + (0.0 if self.prior is None or self.elsewhere else _LESS))

    @property
    def _common(self) -> float:
        return _COMMON**2 if self.prior is None or self.elsewhere else _COMMON_LESS**2

    @cached_property
    def _scales(self) -> Floats:
        """The logarithms of the deviation of each part: the maximum a posteriori estimate."""
        from scipy.optimize import minimize

        if len(self.indices) < 3:
            return self._usual_scales
        chosen = np.arange(len(self.indices))
        if len(chosen) > _MOST:
            chosen = np.random.default_rng(0).permutation(chosen)[:_MOST]
        subset, residual = self.indices[chosen], (self.logs - self._expected[self.indices])[chosen]
        parts, usual, noise = _compute_parts(self.table, subset, subset), self._usual_scales, np.eye(len(subset))

        def compute_loss(scales: Floats) -> float:
            covariance = self._common + _combine_parts(parts, scales) + noise * _compute_noise(scales)
            factor = np.linalg.cholesky(covariance)
            white = np.linalg.solve(factor, residual)
            deviations = ((scales - usual) / _SPREAD) ** 2
            return float(0.5 * white @ white + np.log(np.diag(factor)).sum() + 0.5 * deviations.sum())

        bounds = [(each - 4, each + 3) for each in usual]
        result = minimize(compute_loss, usual, method="L-BFGS-B", bounds=bounds, options={"maxiter": 40})
        return np.asarray(result.x)

    @property
    def noise(self) -> float:
        """The variance of a repeated measurement."""
        return _compute_noise(self._scales)

    @cached_property
    def _solved(self) -> tuple[Floats, Floats]:
        """The Cholesky factor of the covariance of the measured trials, and their weights."""
        covariance = self._compute_covariance(self.indices, self.indices) + np.eye(len(self.indices)) * self.noise
        factor = np.linalg.cholesky(covariance)
        residual = self.logs - self._expected[self.indices]
        return np.asarray(factor, float), np.asarray(
            np.linalg.solve(factor.T, np.linalg.solve(factor, residual)), float
        )

    def predict(self, indices: Indices) -> tuple[Floats, Floats]:
        """Return the expected logarithm of the seconds of trials, and its standard deviation."""
        mean, explained = self._condition(indices)
        variance = self._common + self._compute_variance(indices)
        return mean, self._inflation * np.sqrt(np.maximum(variance - (explained**2).sum(axis=0), 0.0) + self.noise)

    @cached_property
    def _inflation(self) -> float:
        """The factor by which deviations are too small in leave-one-out predictions, at least 1.

        The scales are fitted to few measurements, and taken as exact.
        """
        if len(self.indices) < 3:
            return 1.0
        factor, weights = self._solved
        inverse = np.diag(np.linalg.solve(factor.T, np.linalg.solve(factor, np.eye(len(factor)))))
        return max(1.0, float(np.sqrt(np.mean(weights**2 / inverse))) * _CAUTION)

    def predict_joint(self, indices: Indices) -> tuple[Floats, Floats]:
        """Return the expected logarithms of the seconds of trials, and their covariance without noise."""
        mean, explained = self._condition(indices)
        return mean, self._compute_covariance(indices, indices) - explained.T @ explained

    def _condition(self, indices: Indices) -> tuple[Floats, Floats]:
        across = self._compute_covariance(self.indices, indices)
        factor, weights = self._solved
        return self._expected[indices] + across.T @ weights, np.asarray(np.linalg.solve(factor, across), float)

    def _compute_covariance(self, left: Indices, right: Indices) -> Floats:
        return self._common + _combine_parts(_compute_parts(self.table, left, right), self._scales)

    def _compute_variance(self, indices: Indices) -> Floats:
        lengths = (self.table.numbers[indices] ** 2).mean(axis=1)
        linear, runtime, runtime_linear, sized, network, network_linear, interaction, *_ = np.exp(2 * self._scales)
        slopes = linear + runtime_linear + network_linear
        return np.asarray(slopes * lengths + runtime + sized + network + interaction)


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

    def compare(codes: NDArray[np.intp]) -> Floats:
        return np.asarray(codes[left][:, None] == codes[right][None, :], dtype=float)

    compiler, device = compare(table.compiler), compare(table.device)
    # The same compiler on another device is partly similar, and so is another compiler on the same device.
    runtime = compiler * device * 0.6 + compiler * 0.2 + device * 0.2
    return _Parts(
        linear=products / width,
        distance=np.maximum(distance, 0) / width,
        runtime=runtime,
        network=compare(table.network),
    )


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
    table: TrialTable,
    measurements: Sequence[tuple[int, float]],
    prior: Floats | None = None,
    *,
    elsewhere: bool = False,
) -> Surrogate:
    """Build a surrogate from pairs of a row of the table and its measured seconds."""
    indices = np.array([index for index, _ in measurements], dtype=np.intp)
    return Surrogate(table, indices, np.log([seconds for _, seconds in measurements]), prior, elsewhere)
