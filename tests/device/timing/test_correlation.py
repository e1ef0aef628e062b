"""Rounds that resemble each other: how much wider an interval is for them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from ngbkit.device.timing import correlation, intervals


def draw(strength: float, series: int, rounds: int) -> np.ndarray:
    """Draw series of an autoregressive process."""
    values = np.random.default_rng(0).standard_normal((series, rounds))
    for before, after in pairwise(values.T):
        after *= np.sqrt(1 - strength**2)
        after += strength * before
    return values


def count_misses(logs: np.ndarray, factor: np.ndarray | float) -> float:
    """Return the share of intervals, this factor as wide, that miss the true median of 0."""
    low, high = intervals.compute_median_interval(logs, 0.95)
    center = np.median(logs, axis=1)
    return float(np.mean((center - factor * (center - low) > 0) | (center + factor * (high - center) < 0)))


@pytest.mark.parametrize(("strength", "most"), [(0.0, 0.05), (0.3, 0.07), (0.8, 0.1)])
@pytest.mark.parametrize("rounds", [10, 20])
def test_an_interval_of_one_of_twelve_series_seldom_misses(strength: float, most: float, rounds: int) -> None:
    """It misses the truth in 5 % or little more, whatever the correlation; as of independent rounds, in far more."""
    logs = draw(strength, 4800, rounds)
    pools = np.repeat([correlation.pool_series(run) for run in logs.reshape(-1, 12, rounds)], 12, axis=0)

    assert count_misses(logs, correlation.estimate_inflation(logs, pools)) < most
    assert (count_misses(logs, 1.0) > 2 * most) == (strength > 0.5)


def test_series_of_a_run_borrow_from_each_other() -> None:
    """A series of six rounds tells little of its correlation, and others of its run tell more."""
    alone, resembling = draw(0.0, 1, 6), draw(0.8, 24, 20)

    by_itself = correlation.estimate_inflation(alone)
    assert by_itself == pytest.approx(correlation.estimate_inflation(alone, correlation.pool_series(alone)))
    assert correlation.estimate_inflation(alone, correlation.pool_series(resembling)) > 1.3 * by_itself
    assert correlation.estimate_inflation(alone, correlation.pool_series(draw(0.0, 24, 20))) < by_itself


@pytest.mark.parametrize("rounds", [20, 40])
def test_a_series_that_is_unlike_the_others_keeps_its_width(rounds: int) -> None:
    """The interval of the only correlated series among twelve misses little more often than by itself."""
    odd, others = draw(0.8, 600, rounds), draw(0.0, 6600, rounds).reshape(600, 11, rounds)
    pools = [correlation.pool_series([series, *rest]) for series, rest in zip(odd, others, strict=True)]
    alone = count_misses(odd, correlation.estimate_inflation(odd))
    pooled = count_misses(odd, correlation.estimate_inflation(odd, np.array(pools)))

    assert pooled < alone + 0.08


def test_missing_rounds_are_gaps() -> None:
    """Rounds that are NaN change nothing, wherever they are, nor does the length of other series."""
    values = draw(0.5, 3, 20)
    wider = np.insert(values, [0, 7, 20], np.nan, axis=1)

    np.testing.assert_allclose(correlation.estimate_inflation(values), correlation.estimate_inflation(wider))
    ragged = [values[0], values[1, :8], values[2]]
    padded = values.copy()
    padded[1, 8:] = np.nan
    np.testing.assert_allclose(correlation.pool_series(padded), correlation.pool_series(ragged))


def test_what_tells_nothing_is_no_inflation() -> None:
    """Constant rounds, two of them, or none are as independent ones."""
    for values in (np.ones((2, 10)), np.full((2, 10), np.nan), np.array([[0.1, 0.2]] * 2)):
        assert [1, 1] == correlation.estimate_inflation(values).tolist()
        np.testing.assert_array_equal(correlation.pool_series([]), correlation.pool_series(values))
