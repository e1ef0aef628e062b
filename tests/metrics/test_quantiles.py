"""The uncertainty of a quantile: its probability to keep a deadline is calibrated, and few samples are never sure."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from ngbkit.device.timing import intervals
from ngbkit.metrics.serving import configurations as quantiles

DRAWS = 300


def draw_rounds(
    generator: np.random.Generator, rounds: int, width: int, correlation: float
) -> tuple[np.ndarray, np.ndarray]:
    """Latencies about 1 s whose logarithm is normal, with this correlation between the samples of a round."""
    drift = generator.normal(0, math.sqrt(correlation), (rounds, 1))
    noise = generator.normal(0, math.sqrt(1 - correlation), (rounds, width))
    return np.exp(0.05 * (drift + noise)).ravel(), np.repeat(np.arange(rounds), width)


@pytest.mark.parametrize(
    ("rounds", "width", "correlation", "quantile"), [(40, 10, 0.0, 0.99), (40, 10, 0.3, 0.95), (20, 5, 0.5, 0.9)]
)
def test_the_probability_is_calibrated(rounds: int, width: int, correlation: float, quantile: float) -> None:
    """The probability is without bias at the true quantile and rarely sure, and the interval covers."""
    generator = np.random.default_rng(0)
    true = math.exp(0.05 * NormalDist().inv_cdf(quantile))
    probabilities, covers = [], []
    for _ in range(120):
        latency, numbers = draw_rounds(generator, rounds, width, correlation)
        draws = quantiles.draw_quantiles(latency, numbers, quantile, DRAWS, generator)
        low, high = intervals.compute_interval(draws[:, None], 0.95)
        probabilities.append((draws <= true).mean())
        covers.append(low[0] <= true <= high[0])

    assert 0.3 < np.mean(probabilities) < 0.6
    assert np.mean(np.array(probabilities) > 0.95) < 0.09
    assert 0.88 < np.mean(covers)


@pytest.mark.parametrize(("samples", "expected"), [(30, 1 - 0.99**30), (100, 1 - 0.99**100), (500, 1 - 0.99**500)])
def test_samples_below_a_deadline_are_as_sure_as_their_number(samples: int, expected: float) -> None:
    """The probability that a quantile keeps a far deadline follows from the number of samples."""
    generator = np.random.default_rng(0)
    latency = generator.normal(1, 0.01, samples)
    draws = quantiles.draw_quantiles(latency, np.arange(samples), 0.99, 4000, generator)

    assert expected == pytest.approx((draws < 1e9).mean(), abs=0.03)


def test_samples_that_resemble_each_other_say_less() -> None:
    """Ten equal samples a round know as little of the tail as one."""
    generator = np.random.default_rng(0)
    latency = np.repeat(generator.normal(1, 0.1, 40), 10)
    numbers = np.repeat(np.arange(40), 10)

    assert quantiles.estimate_design_effect(latency, numbers, 0.99) == pytest.approx(10)
    assert quantiles.estimate_design_effect(generator.permutation(latency), numbers, 0.99) < 2
    draws = quantiles.draw_quantiles(latency, numbers, 0.99, 2000, generator)
    assert 1 - 0.99**40 == pytest.approx((draws < 1e9).mean(), abs=0.05)


def test_the_median_is_as_a_bootstrap_has_it() -> None:
    """The interval of a median of independent rounds is that of the house."""
    generator = np.random.default_rng(0)
    latency = generator.normal(1, 0.1, 60)
    draws = quantiles.draw_quantiles(latency, np.arange(60), 0.5, 4000, generator)

    expected = intervals.compute_median_interval(latency, 0.95)
    np.testing.assert_allclose(
        np.ravel(expected), np.ravel(intervals.compute_interval(draws[:, None], 0.95)), atol=0.015
    )


def test_few_rounds_have_no_replicates() -> None:
    """One round says nothing of the next."""
    generator = np.random.default_rng(0)

    assert np.isnan(quantiles.draw_quantiles(np.ones(9), np.zeros(9), 0.9, 10, generator)).all()
    assert np.isnan(quantiles.draw_quantiles(np.array([]), np.array([]), 0.9, 10, generator)).all()
    assert 1.0 == quantiles.estimate_design_effect(np.ones(9), np.zeros(9), 0.9)
    assert math.isnan(quantiles.estimate_quantile(np.array([]), 0.9))


@pytest.mark.parametrize(("quantile", "expected"), [(0.99, 368), (0.9, 36), (0.5, 6)])
def test_the_samples_that_a_quantile_needs(quantile: float, expected: int) -> None:
    """The slowest of the needed samples exceeds the quantile in 97.5 % of cases."""
    assert expected == quantiles.count_needed_samples(quantile, 0.95)
    assert 2 * expected >= quantiles.count_needed_samples(quantile, 0.95, 2.0) > expected
