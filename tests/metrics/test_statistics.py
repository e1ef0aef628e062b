"""Estimates from groups whose true speed-up is 1, compared to the distributions that they were drawn from."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ngbkit.device.timing import intervals
from ngbkit.metrics import statistics

ROUNDS, ROUND_SD = 20, 0.02


def draw(groups: int, process_sd: float, seed: int = 0) -> list[np.ndarray]:
    """Draw log ratios of groups, each with an offset of its own."""
    generator = np.random.default_rng(seed)
    offsets = generator.normal(0, process_sd, groups)
    return [offset + generator.normal(0, ROUND_SD, ROUNDS) for offset in offsets]


@pytest.mark.parametrize("process_sd", [0.01, 0.03, 0.1])
def test_variation_between_processes_is_separated_from_that_between_rounds(process_sd: float) -> None:
    """The estimate separates the variation of processes from that of rounds."""
    estimate = statistics.estimate_process_sd(draw(1000, process_sd))

    assert process_sd == pytest.approx(estimate, rel=0.1)


def test_identical_processes_hardly_differ() -> None:
    """The estimate is far below the error of a group's own median."""
    scatter = float(np.std([np.median(ratios) for ratios in draw(1000, 0.0)]))

    assert statistics.estimate_process_sd(draw(1000, 0.0)) < scatter / 2


def test_rounds_that_resemble_each_other_are_no_process() -> None:
    """The interval of a group allows for them already: an allowance for them as well would count them twice."""
    generator = np.random.default_rng(0)
    groups = []
    for _ in range(400):
        steps, values = generator.normal(0, ROUND_SD, 100), [0.0]
        for step in steps:
            values.append(0.6 * values[-1] + step)
        groups.append(np.array(values[1:]))
    scatter = float(np.std([np.median(ratios) for ratios in groups]))

    assert statistics.estimate_process_sd(groups) < scatter / 3
    moved = [ratios + generator.normal(0, 2 * scatter) for ratios in groups]
    assert 2 * scatter == pytest.approx(statistics.estimate_process_sd(moved), rel=0.15)


def test_identical_rounds_are_all_process() -> None:
    """Rounds without any spread show the deviation between processes itself."""
    offsets = np.random.default_rng(0).normal(0, 0.01, 400)

    assert 0.01 == pytest.approx(statistics.estimate_process_sd([np.full(20, offset) for offset in offsets]), rel=0.1)
    assert 0.0 == statistics.estimate_process_sd([np.zeros(20)] * 4)


def test_an_outlying_group_does_not_decide() -> None:
    """An outlying group is clipped at three robust standard deviations."""
    groups = draw(100, 0.01)
    groups[7] = groups[7] + 2.0

    assert statistics.estimate_process_sd(groups) < 0.02


def test_groups_of_single_rounds_are_ignored() -> None:
    """The estimate ignores groups of a single round."""
    assert 0.0 == statistics.estimate_process_sd([np.array([0.5]), np.array([])])


def test_a_robust_deviation_ignores_outliers() -> None:
    """A robust deviation ignores outliers and is scaled to a normal distribution."""
    values = np.append(np.random.default_rng(0).normal(1, ROUND_SD, 1000), [50.0] * 20)

    assert pytest.approx(ROUND_SD, rel=0.1) == statistics.estimate_robust_sd(values)


@pytest.mark.parametrize(("freedom", "quantile"), [(4, 2.776), (9, 2.262), (30, 2.042)])
def test_few_runs_widen_a_deviation_as_students_t_does(freedom: int, quantile: float) -> None:
    """The quantiles are those of any table, at 97.5 %."""
    assert quantile / 1.96 == pytest.approx(statistics.widen_for_freedom(1.0, freedom), rel=1e-3)


def test_normal_scores_keep_the_tails_of_students_t() -> None:
    """A score of 2.776 has a tail of 2.5 % with four degrees of freedom, which 16 rounds and a factor of one give."""
    scores = statistics.to_normal_scores([2.776, -2.776, 0.0, math.inf, math.nan], 16, degrees=1.0)

    assert [1.96, -1.96, 0.0, math.inf] == pytest.approx(scores[:4].tolist(), abs=1e-3)
    assert math.isnan(scores[4])


@pytest.mark.parametrize(
    ("hits", "total", "interval"), [(0, 10, (0.0, 0.278)), (10, 10, (0.722, 1.0)), (81, 263, (0.255, 0.366))]
)
def test_a_share_has_wilsons_interval(hits: int, total: int, interval: tuple[float, float]) -> None:
    """The last is the example of Newcombe (1998), table I."""
    rate, *ends = statistics.estimate_share(hits, total)

    assert hits / total == rate
    assert interval == pytest.approx(tuple(ends), abs=1e-3)


def test_a_share_of_nothing_is_nan() -> None:
    """A share of nothing, and its interval, is NaN."""
    assert all(math.isnan(value) for value in statistics.estimate_share(0, 0))


def test_of_discoveries_a_share_is_false() -> None:
    """The values of Benjamini and Hochberg's procedure, by hand; what says nothing is one that was looked at."""
    adjust = statistics.adjust_by_false_discovery

    assert [0.02, 0.04, 0.04, 0.04, 0.5] == pytest.approx(adjust([0.004, 0.03, 0.016, 0.032, 0.5]).tolist())
    assert [0.04, 1.0] == pytest.approx(adjust([0.02, np.nan]).tolist())
    assert [] == adjust([]).tolist()


@pytest.mark.parametrize("rounds", [40, 41])
def test_replicates_are_those_of_a_plain_bootstrap(rounds: int) -> None:
    """Median and spread of the replicates are those of medians of resamples, except for the small-sample correction."""
    generator = np.random.default_rng(1)
    values = generator.standard_normal((50, rounds))
    picked = generator.integers(0, rounds, (50, 4000, rounds))
    plain = np.median(np.take_along_axis(values[:, None, :], picked, axis=-1), axis=-1)

    replicates = resample(values, seed=1)

    np.testing.assert_allclose(np.median(plain, axis=1), np.median(replicates, axis=1), atol=0.06)
    # Linear between the values rather than in steps, the spread of a single sample differs; on average it does not.
    widened = math.sqrt(rounds / (rounds - 1))
    assert pytest.approx(widened, rel=0.03) == np.mean(replicates.std(axis=1)) / np.mean(plain.std(axis=1))


def test_an_interval_of_replicates_has_no_error_of_its_draws() -> None:
    """The interval of rounds is exact, and that of rounds and noise is one of two normal deviations, in any order."""
    values = np.random.default_rng(2).standard_normal((100, 13))
    bounds = intervals.compute_interval(resample(values).T, 0.95)
    np.testing.assert_allclose(bounds, intervals.compute_median_interval(values, 0.95), atol=0.03)

    first, noise = statistics.draw_scores(np.random.default_rng(3), 40, draws=1000)
    for share in (0.1, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 5.0):
        _, high = intervals.compute_interval((first + share * noise).T, 0.95)
        np.testing.assert_allclose(high, 1.96 * math.hypot(1, share), rtol=0.016)
        assert np.ptp(high) < 1e-12


def test_rows_of_replicates_are_independent() -> None:
    """Many rows are not correlated."""
    replicates = resample(np.random.default_rng(4).standard_normal((400, 21)))

    correlations = np.corrcoef(replicates)[np.triu_indices(400, 1)]

    assert pytest.approx(1 / math.sqrt(1000), rel=0.05) == correlations.std()


def test_rows_may_have_rounds_of_their_own() -> None:
    """Each row uses its own rounds; a row without any is NaN, and a single round is its own median."""
    replicates = resample(np.array([[1.0, 2.0, 4.0], [5.0, np.nan, np.nan], [np.nan, np.nan, np.nan]]))

    assert 1 <= replicates[0].min() <= replicates[0].max() <= 4
    np.testing.assert_array_equal(np.full(1000, 5.0), replicates[1])
    assert np.isnan(replicates[2]).all()
    assert (2, 3, 1000) == resample(np.ones((2, 3, 5))).shape
    assert np.isnan(resample(np.empty((2, 0)))).all()


def resample(values: np.ndarray, seed: int = 0) -> np.ndarray:
    """Resample the medians of rows into a thousand replicates."""
    scores, _ = statistics.draw_scores(np.random.default_rng(seed), *values.shape[:-1], draws=1000)
    return statistics.resample_medians(values, scores)
