"""The rates of a load test."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ngbkit.device.serving.load import Load, ServedTrial
from ngbkit.errors import UsageError

LOAD = Load(rate=100.0, deadline=0.05, quantile=0.9, seconds=2.0)


def build_trial(rate: float, latency: float) -> ServedTrial:
    times = (latency,) * 10
    return ServedTrial(
        rate=rate,
        seconds=2.0,
        arrivals_s=times,
        latency_s=times,
        batches=(4, 6),
        busy_s=1.0,
        lag_s=0.0,
        generator_cpu_s=0.0,
        disturbed=False,
    )


def test_the_first_rates_surround_the_expected_rate() -> None:
    """In an order that the seed determines; a short trial before each calibrates, so that drift is in both alike."""
    calibrating, checks = LOAD.list_trials()[::2], LOAD.list_trials()[1::2]
    rates = [trial.rate for trial in checks]

    assert [80, 90, 100, 110, 120] == pytest.approx(sorted(rates))
    assert sorted(rates) != rates
    assert LOAD.list_trials() == LOAD.list_trials()
    assert [(50, 1), (90, 1)] == [(trial.rate, trial.seconds) for trial in calibrating[:2]]
    assert [True] * 5 + [False] * 5 == [trial.calibrates for trial in (*calibrating, *checks)]
    assert Load.from_json(json.loads(json.dumps(LOAD.to_json()))) == LOAD


def test_trials_go_on_until_the_deadline_lies_between_two() -> None:
    """Upwards while all keep it, downwards while none does, and not for ever."""
    keeping, missing = build_trial(120.0, 0.01), build_trial(80.0, 0.2)

    assert LOAD.choose_next([keeping, missing]) is None
    assert 156 == pytest.approx(LOAD.choose_next([keeping]))
    assert 56 == pytest.approx(LOAD.choose_next([missing]))
    assert LOAD.choose_next([missing] * 8) is None


def test_too_many_requests_are_refused() -> None:
    """Before anything is sent: the message says what to change."""
    with pytest.raises(UsageError, match="got 90000 requests/s for 2 s a trial; expected at most 100,000"):
        Load(rate=90_000.0, deadline=1.0, quantile=0.9, seconds=2.0)


def test_a_load_without_checks_only_calibrates() -> None:
    """It looks for no rate that misses the deadline."""
    load = replace(LOAD, factors=())
    trials = load.list_trials()

    assert [(50, True), (90, True)] == [(trial.rate, trial.calibrates) for trial in trials]
    assert load.choose_next([replace(build_trial(50.0, 0.01), calibrates=True)]) is None


def test_a_trial_has_a_latency_for_each_request() -> None:
    """A device that sends others, or calls with others, is not believed."""
    trial = build_trial(100.0, 0.01)

    with pytest.raises(UsageError, match="got 0 latencies of 10 requests"):
        replace(trial, latency_s=())
    with pytest.raises(UsageError, match="got 9 requests in 2 calls; expected 10"):
        replace(trial, batches=(4, 5))
