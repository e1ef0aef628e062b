"""A capacity by real load: what trials say of it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ngbkit.metrics.serving import load_test, queueing
from ngbkit.metrics.serving.load_test import Expected, LoadTrial
from ngbkit.metrics.serving.queueing import Server

LABELS = {"workload": "net", "compiler": "openvino", "device": "cpu"}
DEADLINE, QUANTILE = 0.05, 0.9


def build_server(seconds: float = 0.01) -> Server:
    generator = np.random.default_rng(0)
    return Server(sizes=(1,), rounds=(tuple(seconds * generator.lognormal(0, 0.1, 8) for _ in range(12)),))


def run_trial(rate: float, slowdown: float, seed: int, **fields) -> tuple[LoadTrial, np.ndarray]:
    """What a server that is slower than the stored samples would measure, and the arrivals."""
    generator = np.random.default_rng(seed)
    arrivals = queueing.draw_arrivals(1, 400, generator)
    server = build_server(0.01 * slowdown)
    streams = queueing.draw_streams(server, 1, generator)
    zero = np.zeros(1, dtype=int)
    served = queueing.simulate(server, np.array([rate]), arrivals, streams, sequence=zero, stream=zero)
    latency = served.latency[0]
    values = {
        "rate": rate,
        "requests": 400,
        "latency": float(np.quantile(latency, QUANTILE)),
        "missed": float(np.mean(latency > DEADLINE)),
        "calls": 400,
        "busy": 0.8,
        "lag": 0.0001,
        "generator_cpu": 0.01,
        "disturbed": False,
    }
    return LoadTrial(**{**values, **fields}), arrivals[0] / rate


def assess(slowdown: float = 1.0, rates=(55.0, 62.0, 69.0, 76.0, 83.0), **fields) -> load_test.LoadTest:
    simulated = queueing.find_capacity(build_server(), DEADLINE, QUANTILE, 0).rate
    expected = Expected(stored=build_server(), simulated=simulated, server=build_server(), calibrated=simulated)
    trials = [run_trial(rate, slowdown, seed, **fields) for seed, rate in enumerate(rates)]
    return load_test.assess(LABELS, expected, DEADLINE, QUANTILE, trials)


@pytest.mark.parametrize("slowdown", [0.95, 1.0, 1.1])
def test_a_slower_server_has_the_capacity_of_its_own_simulation(slowdown: float) -> None:
    """Though each trial is short: its simulation has the same arrivals."""
    test = assess(slowdown)
    expected = queueing.find_capacity(build_server(0.01 * slowdown), DEADLINE, QUANTILE, 0).rate

    assert expected == pytest.approx(test.rate, rel=0.05)
    assert test.low < test.rate < test.high
    assert test.high - test.low < 0.3 * test.rate


def test_the_deadline_lies_between_a_rate_that_keeps_it_and_one_that_does_not() -> None:
    """A rate beyond the first miss does not count as kept; the trials are in the order of their rates."""
    test = assess(1.1, rates=(90.0, 40.0, 98.0))

    assert 40 == test.highest_met
    assert 90 == test.lowest_missed
    assert [40, 90, 98] == [trial.rate for trial in test.trials]
    assert [] == [note for note in test.notes if "beyond" in note]


@pytest.mark.parametrize(
    ("rates", "words"), [((20.0, 30.0), "each tested rate keeps"), ((110.0, 120.0), "no tested rate keeps")]
)
def test_a_capacity_beyond_the_tested_rates_is_named_so(rates, words) -> None:
    """It is extrapolated."""
    (note,) = [note for note in assess(rates=rates).notes if "beyond" in note]

    assert note.startswith(f"net openvino: {words}")


def test_what_spoiled_a_trial_is_said() -> None:
    """Other work, a late generator, and too few requests for the quantile."""
    test = assess(disturbed=True, lag=0.02, requests=20)

    assert not test.settled
    assert "net openvino: other work disturbed 5 of 5 trials" in test.notes
    assert any("the generator was up to 20.0 ms late" in note for note in test.notes)
    assert any("p90 of 20 requests a trial is of its slowest few" in note for note in test.notes)


def test_a_single_trial_has_no_interval() -> None:
    """Its spread is unknown."""
    rate, low, high = load_test.estimate_rate(100.0, [1.25])

    assert 80 == pytest.approx(rate)
    assert math.isnan(low)
    assert math.isnan(high)


def test_a_calibration_without_a_capacity_is_compared_with_the_samples() -> None:
    """Where even an idle server misses the deadline, a note says so, and the measured rate has a reference."""
    stored, slow = build_server(), build_server(1.0)
    expected = Expected(stored=stored, simulated=60.0, server=slow, calibrated=0.0)
    test = load_test.assess(LABELS, expected, DEADLINE, QUANTILE, [run_trial(50.0, 1.0, 1), run_trial(55.0, 1.0, 2)])

    assert (60.0, 0.0) == (test.simulated, test.calibrated)
    assert 0.3 < expected.rate < 0.7  # calls take a second: half of what they allow
    assert test.rate > 30
    assert any("an idle server misses the deadline" in note for note in test.notes)


def test_a_latency_that_hardly_depends_on_the_rate_says_little() -> None:
    """At low rates it is the duration of a call: its stretch is the nearest one, not the end of the search."""
    arrivals = np.arange(1, 401) / 5.0
    server = build_server()
    exact = load_test.compute_stretch(server, 5.0, arrivals, float(np.quantile(server.rounds[0], 0.9)), 0.9, 0)
    below = load_test.compute_stretch(server, 50.0, arrivals / 10, 0.001, 0.9, 0)

    assert 0.8 < exact < 1.25
    assert 0.8 < below < 1.25
