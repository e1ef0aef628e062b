"""What trials that were not measured are likely to take: a Gaussian process over those that were.

The logarithm of a latency is a sum of what is linear in the size of the work, of what the runtime adds to all, of what
the runtime makes of work of that size, of what the network is by itself and how it grows, and of what that network is
on that runtime.
How much each of these varies is learned from the measurements (Rasmussen and Williams, Gaussian Processes for Machine
Learning, chapters 2 and 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ngbkit.predictor.forecast.table import Floats, Table

Places = NDArray[np.intp]

# What is learned, as logarithms of deviations: linear in size, of the runtime, linear in size for the runtime, of the
# runtime and the size, of the network, linear in size for the network, of the network on the runtime, noise; and the
# length along sizes.
_USUAL = np.log([1.0, 0.5, 0.2, 0.3, 0.5, 0.5, 0.15, 0.02, 1.5])
# How far they are likely to be from that.
_SPREAD = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.7])
# A deviation of nothing in particular: what all have in common is learned from whatever is measured.
_COMMON = 10.0
# Where another model says what to expect, by so much less is it off, in all parts but noise and length; and in common.
_LESS, _COMMON_LESS = np.log([0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.5, 1.0, 1.0]), 0.3
# Measurements were chosen, and what varies was learned, such that they are predicted well.
_CAUTION = 1.7
# More measurements than this teach no more of how much varies, and take long.
_MOST = 250


@dataclass(frozen=True, eq=False)
class Surrogate:
    """Latencies of all trials of a table, as far as those of some of them tell.

    Parameters
    ----------
    table
        The trials.
    places
        Of those that were measured.
    logs
        The logarithm of the seconds that each of these took.
    prior
        The logarithm of what another model says of every trial, NaN where it says nothing; None: there is none.
    """

    table: Table
    places: Places
    logs: Floats
    prior: Floats | None = None

    @cached_property
    def _expected(self) -> Floats:
        """What is expected of every trial before anything is measured."""
        if self.prior is None:
            return np.zeros(len(self.table))
        known = np.isfinite(self.prior)
        anything = float(self.prior[known].mean()) if known.any() else 0.0
        found = self.prior.copy()
        for at in np.flatnonzero(~known):
            # Another runtime says at least how large the network is.
            beside = known & (self.table.network == self.table.network[at])
            alike = beside & (np.abs(self.table.numbers - self.table.numbers[at]).max(axis=1) < 1e-9)
            found[at] = self.prior[alike].mean() if alike.any() else anything
        return found

    @property
    def _usual(self) -> Floats:
        return np.asarray(_USUAL + (0.0 if self.prior is None else _LESS))

    @property
    def _common(self) -> float:
        return _COMMON**2 if self.prior is None else _COMMON_LESS**2

    @cached_property
    def _scales(self) -> Floats:
        """How much each part varies: what makes the measurements most likely, and is itself not unlikely."""
        from scipy.optimize import minimize

        if len(self.places) < 3:
            return self._usual
        chosen = np.arange(len(self.places))
        if len(chosen) > _MOST:
            chosen = np.random.default_rng(0).permutation(chosen)[:_MOST]
        some, residual = self.places[chosen], (self.logs - self._expected[self.places])[chosen]
        parts, usual, noise = _parts(self.table, some, some), self._usual, np.eye(len(some))

        def unlikely(scales: Floats) -> float:
            covariance = self._common + _covariance(parts, scales) + noise * _noise(scales)
            factor = np.linalg.cholesky(covariance)
            white = np.linalg.solve(factor, residual)
            far = ((scales - usual) / _SPREAD) ** 2
            return float(0.5 * white @ white + np.log(np.diag(factor)).sum() + 0.5 * far.sum())

        bounds = [(each - 4, each + 3) for each in usual]
        found = minimize(unlikely, usual, method="L-BFGS-B", bounds=bounds, options={"maxiter": 40})
        return np.asarray(found.x)

    @property
    def noise(self) -> float:
        """The variance of a measurement itself."""
        return _noise(self._scales)

    @cached_property
    def _solved(self) -> tuple[Floats, Floats]:
        """The factor of the covariance of what was measured, and what it makes of the measurements."""
        covariance = self._between(self.places, self.places) + np.eye(len(self.places)) * self.noise
        factor = np.linalg.cholesky(covariance)
        residual = self.logs - self._expected[self.places]
        return np.asarray(factor, float), np.asarray(
            np.linalg.solve(factor.T, np.linalg.solve(factor, residual)), float
        )

    def predict(self, places: Places) -> tuple[Floats, Floats]:
        """The expected logarithm of the seconds of trials, and its standard deviation."""
        mean, known = self._known(places)
        own = self._common + self._diagonal(places)
        return mean, self._stretch * np.sqrt(np.maximum(own - (known**2).sum(axis=0), 0.0) + self.noise)

    @cached_property
    def _stretch(self) -> float:
        """By how much deviations are too small, by each measurement predicted from the others; never less than 1.

        How much varies is learned from few measurements, and taken for certain.
        """
        if len(self.places) < 3:
            return 1.0
        factor, weights = self._solved
        inverse = np.diag(np.linalg.solve(factor.T, np.linalg.solve(factor, np.eye(len(factor)))))
        return max(1.0, float(np.sqrt(np.mean(weights**2 / inverse))) * _CAUTION)

    def joint(self, places: Places) -> tuple[Floats, Floats]:
        """The expected logarithms of the seconds of trials, and how they vary together, without noise."""
        mean, known = self._known(places)
        return mean, self._between(places, places) - known.T @ known

    def _known(self, places: Places) -> tuple[Floats, Floats]:
        across = self._between(self.places, places)
        factor, weights = self._solved
        return self._expected[places] + across.T @ weights, np.asarray(np.linalg.solve(factor, across), float)

    def _between(self, left: Places, right: Places) -> Floats:
        return self._common + _covariance(_parts(self.table, left, right), self._scales)

    def _diagonal(self, places: Places) -> Floats:
        lengths = (self.table.numbers[places] ** 2).mean(axis=1)
        linear, runtime, runtime_linear, sized, network, network_linear, own, *_ = np.exp(2 * self._scales)
        slopes = linear + runtime_linear + network_linear
        return np.asarray(slopes * lengths + runtime + sized + network + own)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What two sets of trials have in common, each of shape ``(left, right)``."""

    linear: Floats
    distance: Floats
    runtime: Floats
    network: Floats


def _parts(table: Table, left: Places, right: Places) -> _Parts:
    some, others = table.numbers[left], table.numbers[right]
    width = max(1, some.shape[1])
    products = some @ others.T
    distance = (some**2).sum(axis=1)[:, None] + (others**2).sum(axis=1)[None, :] - 2 * products

    def same(codes: NDArray[np.intp]) -> Floats:
        return np.asarray(codes[left][:, None] == codes[right][None, :], dtype=float)

    compiler, device = same(table.compiler), same(table.device)
    # A compiler on another device is more like itself than like another one, and so is a device.
    runtime = compiler * device * 0.6 + compiler * 0.2 + device * 0.2
    return _Parts(
        linear=products / width, distance=np.maximum(distance, 0) / width, runtime=runtime, network=same(table.network)
    )


def _covariance(parts: _Parts, scales: Floats) -> Floats:
    linear, runtime, runtime_linear, sized, network, network_linear, own, *_ = np.exp(2 * scales)
    near = np.exp(-0.5 * parts.distance / np.exp(2 * scales[-1]))
    found = linear * parts.linear + runtime * parts.runtime
    found = found + parts.runtime * (runtime_linear * parts.linear + sized * near)
    found = found + parts.network * (network_linear * parts.linear + near * (network + own * parts.runtime))
    return np.asarray(found)


def _noise(scales: Floats) -> float:
    # Never less: two measurements of one thing differ by more than a tenth of a per cent.
    return float(np.exp(2 * scales[-2])) + 1e-6


def of(table: Table, known: Sequence[tuple[int, float]], prior: Floats | None = None) -> Surrogate:
    """A surrogate from places and seconds."""
    places = np.array([at for at, _ in known], dtype=np.intp)
    return Surrogate(table, places, np.log([seconds for _, seconds in known]), prior)
