"""Scores match numbers computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ngbkit.predict.scoring import scores


def test_relative_errors() -> None:
    """Errors are relative to the measurements."""
    predicted, measured = [1.1, 2.0, 2.0], [1.0, 2.0, 4.0]

    assert pytest.approx((0.1 + 0 + 0.5) / 3) == scores.mape(predicted, measured)
    assert pytest.approx(2 / 3) == scores.within(predicted, measured, 0.11)
    assert all(map(math.isnan, (scores.mape([], []), scores.within([], []), scores.tau([1], [1]))))


def test_order() -> None:
    """One pair of three in the wrong order is a tau of a third."""
    assert pytest.approx(1.0) == scores.tau([1, 2, 3], [10, 20, 30])
    assert pytest.approx(1 / 3) == scores.tau([1, 3, 2], [10, 20, 30])


def test_the_sign_of_real_gains_within_a_network() -> None:
    """Pairs of different networks, and pairs that differ by less than 3 %, do not count."""
    measured = [1.0, 0.9, 1.01, 5.0, 4.0]
    predicted = [1.0, 0.95, 2.0, 4.0, 5.0]
    parents = ["a", "a", "a", "b", "b"]

    # Real: a0-a1 right, a1-a2 right, b0-b1 wrong; a0-a2 differs by 1 % only.
    assert (pytest.approx(2 / 3), 3) == scores.sign_accuracy(predicted, measured, parents)
    share, pairs = scores.sign_accuracy([1.0], [1.0], ["a"])
    assert math.isnan(share)
    assert 0 == pairs


def test_an_uncertain_gain_does_not_count() -> None:
    """A gain of 10 % with an error of 1 % counts; with an error of 5 % it does not."""
    score = scores.sign_accuracy([1.0, 2.0, 3.0], [1.0, 1.1, 1.2], ["a", "a", "a"], errors=[0.0, 0.01, 0.1])

    assert (1.0, 1) == score


def test_a_pair_of_unknown_noise_does_not_count() -> None:
    """A pair of unknown noise does not count, as its difference may be noise."""
    score = scores.sign_accuracy([1.0, 2.0], [1.0, 2.0], ["a", "a"], errors=[0.0, math.nan])

    assert 0 == score[1]


def test_the_median_error_ignores_how_wrong_the_worst_is() -> None:
    """One of three is wrong by a factor."""
    assert pytest.approx(0.1) == scores.median_error([1.1, 9.0, 1.05], [1.0, 1.0, 1.0])
    assert math.isnan(scores.median_error([], []))


def test_rank_correlation() -> None:
    """Ranks 1, 3, 2 of 1, 2, 3 have a rho of a half; ties share their mean rank; a constant has none."""
    assert pytest.approx(0.5) == scores.rho([1, 30, 20], [1, 2, 3])
    assert pytest.approx(math.sqrt(0.75)) == scores.rho([1, 1, 2], [1, 2, 3])
    assert math.isnan(scores.rho([1, 1], [1, 2]))
    assert math.isnan(scores.rho([1], [1]))


def test_the_noise_floor_is_the_error_of_the_truth() -> None:
    """Against labels with normal noise of their logarithm, the true latency has this MAPE."""
    errors = np.array([0.02, 0.1, 0.4, math.nan])
    noise = np.random.default_rng(0).normal(size=(100_000, 3)) * errors[:3]

    assert pytest.approx(scores.mape(np.ones(noise.shape), np.exp(noise)), rel=0.01) == scores.noise_floor(errors)
    assert math.isnan(scores.noise_floor([math.nan]))
