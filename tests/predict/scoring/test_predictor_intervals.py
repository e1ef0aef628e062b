"""Intervals cover networks like those of the fit as often as they say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from ngbkit.predict.scoring.intervals import Calibration


@dataclass
class Constant:
    """A model that predicts one number of seconds for every graph."""

    seconds: float

    def predict(self, graphs) -> np.ndarray:
        return np.full((len(graphs), 1), self.seconds)


def build(logs, errors, fold=None, network=None) -> Calibration:
    """A calibration whose models predict `exp(logs)`, a graph per error."""
    errors = np.asarray(errors, float)[:, None]
    every = np.arange(len(errors))
    return Calibration(
        models=tuple(Constant(float(np.exp(log))) for log in logs),
        errors=errors,
        fold=every if fold is None else np.array(fold),
        network=every if network is None else np.array(network),
    )


def compute_ends(calibration: Calibration, ci: float) -> tuple[float, float]:
    """The logarithms of both ends of one interval."""
    with np.errstate(divide="ignore"):
        return tuple(float(np.log(end[0, 0])) for end in calibration.predict([None], ci))


def test_an_interval_is_that_of_cv_plus() -> None:
    """The ends of an interval are the ranks of predictions minus and plus errors, as in CV+."""
    calibration = build([0.0, 1.0, 2.0], [0.5, 0.1, 0.2])

    assert pytest.approx((-0.5, 2.2)) == compute_ends(calibration, 0.75)
    assert pytest.approx((0.9, 1.1)) == compute_ends(calibration, 0.5)


def test_too_few_networks_give_an_infinite_interval() -> None:
    """Three networks say nothing about 80 %."""
    calibration = build([0.0], [0.5, 0.1, 0.2], fold=[0, 0, 0])

    assert (-np.inf, np.inf) == compute_ends(calibration, 0.8)
    assert pytest.approx((-0.5, 0.5)) == compute_ends(calibration, 0.75)


def test_variants_of_a_network_count_as_one() -> None:
    """Ten variants with large errors are one network of four."""
    errors = [0.9] * 10 + [0.1, 0.2, 0.3]
    network = [0] * 10 + [1, 2, 3]
    calibration = build([0.0], errors, fold=[0] * 13, network=network)

    assert pytest.approx((-0.3, 0.3)) == compute_ends(calibration, 0.6)
    assert 4 == calibration.count_networks(0)


def test_a_missing_latency_is_no_error() -> None:
    """A runtime without any has an infinite interval."""
    calibration = build([0.0], [0.1, np.nan, 0.2, np.nan], fold=[0] * 4)

    assert pytest.approx((-0.2, 0.2)) == compute_ends(calibration, 2 / 3)
    assert (-np.inf, np.inf) == compute_ends(build([0.0], [np.nan], fold=[0]), 0.5)


@pytest.mark.parametrize("ci", [0.8, 0.95])
def test_intervals_cover_as_often_as_they_say(ci: float) -> None:
    """The mean of 40 networks predicts the next one; folds of 8."""
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(400):
        values, truth = rng.normal(0, 0.1, 40), rng.normal(0, 0.1, 50)
        fold = np.arange(40) % 5
        means = np.array([values[fold != number].mean() for number in range(5)])
        low, high = compute_ends(build(means, np.abs(values - means[fold]), fold=fold), ci)
        covered.append(np.mean((low <= truth) & (truth <= high)))

    assert ci - 0.02 < np.mean(covered) < ci + 0.04


def test_few_errors_of_two_sizes_are_covered() -> None:
    """Ten networks, of which one or two are far worse predicted: normal errors would leave out all of these."""
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(400):
        errors, truth = (
            np.where(rng.random(count) < 0.15, 0.4, 0.01) * rng.normal(1, 0.1, count) for count in (10, 50)
        )
        low, high = compute_ends(build([0.0], np.abs(errors), fold=[0] * 10), 0.95)
        covered.append(np.mean((low <= truth) & (truth <= high)))

    assert np.mean(covered) > 0.94
