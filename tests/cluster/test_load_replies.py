"""What a device answers after a load test is checked like all that it sends."""

from __future__ import annotations

from typing import Any

import pytest

from ngbkit.cluster.replies import ReplyError, parse_load_test

TRIAL: dict[str, Any] = {
    "rate": 50.0,
    "seconds": 2.0,
    "arrivals_s": [0.1, 0.3],
    "latency_s": [0.02, 0.03],
    "batches": [1, 1],
    "busy_s": 0.05,
    "lag_s": 0.0,
    "generator_cpu_s": 0.01,
    "contended": False,
}


def test_trials_are_read() -> None:
    """Each trial of a load test is parsed to a record."""
    (trial,) = parse_load_test("orin", {"trials": [TRIAL]})

    assert (50.0, (0.1, 0.3), (0.02, 0.03)) == (trial.rate, trial.arrivals_s, trial.latency_s)


@pytest.mark.parametrize(
    "change",
    [
        {"latency_s": [0.02]},
        {"latency_s": [], "arrivals_s": []},
        {"latency_s": [0.02, -1.0]},
        {"latency_s": [0.02, "inf"]},
        {"latency_s": "0.02"},
        {"rate": 0},
        {"batches": [0, 2]},
        {"contended": "\x1b[2J"},
        {"seconds": None},
    ],
)
def test_what_no_device_sends_is_refused(change: dict[str, Any]) -> None:
    """The error names the device, and obeys no control character."""
    with pytest.raises(ReplyError, match=r"invalid load test from device orin: [^\x1b]+$"):
        parse_load_test("orin", {"trials": [{**TRIAL, **change}]})


@pytest.mark.parametrize("trials", [None, {}, "x", [1]])
def test_trials_are_a_list_of_records(trials: Any) -> None:
    """The reply of a load test is refused unless its trials are a list of records."""
    with pytest.raises(ReplyError, match="invalid load test from device orin"):
        parse_load_test("orin", {"trials": trials})
