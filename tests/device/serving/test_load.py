"""The rates of a load test."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ngbkit.device.serving.load import CALIBRATION, Load, ServedTrial
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
    """In an order that the seed determines, so that a machine that warms up does not look like a rate."""
    assert [80, 90, 100, 110, 120] == pytest.approx(sorted(LOAD.list_rates()))
    assert LOAD.list_rates() == LOAD.list_rates()
    assert sorted(LOAD.list_rates()) != LOAD.list_rates()
    assert Load.from_json(LOAD.to_json()) == LOAD


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


def test_a_calibration_has_its_own_rates_and_no_others() -> None:
    """It looks for no rate that misses the deadline; its rates cross the wire."""
    load = Load(**{**LOAD.to_json(), "factors": CALIBRATION, "brackets": False})

    assert [50, 90] == pytest.approx(sorted(load.list_rates()))
    assert load.choose_next([build_trial(50.0, 0.01)]) is None
    assert Load.from_json(json.loads(json.dumps(load.to_json()))) == load


def test_a_trial_has_a_latency_for_each_request() -> None:
    """A device that sends others, or calls with others, is not believed."""
    trial = build_trial(100.0, 0.01)

    with pytest.raises(UsageError, match="got 0 latencies of 10 requests"):
        replace(trial, latency_s=())
    with pytest.raises(UsageError, match="got 9 requests in 2 calls; expected 10"):
        replace(trial, batches=(4, 5))
