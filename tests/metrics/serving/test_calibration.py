"""A server calibrated by a real load: the durations of its calls, after a pause and in a row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ngbkit.device.serving.load import ServedTrial
from ngbkit.metrics.serving import calibration, queueing
from ngbkit.metrics.serving.queueing import Server

STORED = {1: 0.01, 2: 0.014}
DEADLINE, QUANTILE = 0.05, 0.9


def build_server(factor: float = 1.0, max_delay: float = 0.0) -> Server:
    generator = np.random.default_rng(0)
    rounds = tuple(
        tuple(factor * seconds * generator.lognormal(0, 0.03, 8) for _ in range(12)) for seconds in STORED.values()
    )
    return Server(sizes=tuple(STORED), rounds=rounds, max_delay=max_delay)


def build_real_server() -> Server:
    """Its calls take 5 % longer in a row, and twice as long after a pause, as those of `build_server`."""
    server = build_server(1.05)
    rested = tuple(tuple(2 * part for part in rounds) for rounds in build_server().rounds)
    return Server(sizes=server.sizes, rounds=server.rounds, pauses=(0.0,), rested=(rested,))


def build_trial(arrivals: Sequence[float], latency: Sequence[float], batches: Sequence[int]) -> ServedTrial:
    return ServedTrial(
        rate=1.0,
        seconds=1.0,
        arrivals_s=tuple(arrivals),
        latency_s=tuple(latency),
        batches=tuple(batches),
        busy_s=0.1,
        lag_s=0.0,
        generator_cpu_s=0.0,
        disturbed=False,
    )


def serve(server: Server, rate: float, seed: int, requests: int = 1500) -> ServedTrial:
    """What a load test of a server shows: requests with the same completion were one call."""
    generator = np.random.default_rng(seed)
    arrivals = queueing.draw_arrivals(1, requests, generator)
    streams = queueing.draw_streams(server, 1, generator)
    zero = np.zeros(1, dtype=int)
    served = queueing.simulate(server, np.array([rate]), arrivals, streams, sequence=zero, stream=zero)
    times, latency = arrivals[0] / rate, served.latency[0]
    _, batches = np.unique(np.round(times + latency, 9), return_counts=True)
    return build_trial(times.tolist(), latency.tolist(), batches.tolist())


def test_a_call_counts_from_when_it_could_have_begun() -> None:
    """From its first request on an idle server, else from the end of the call before it; the first call is left out."""
    trial = build_trial([0.0, 1.0, 1.1, 1.2, 1.3], [0.5, 0.25, 0.45, 0.35, 0.25], [1, 1, 2, 1])
    calls = calibration.read_calls(build_server(), trial)

    assert [0, 1, 0] == calls.size.tolist()
    assert [0.5, 0.0, 0.0] == pytest.approx(calls.pause.tolist())
    assert [0.25, 0.3, 0.0] == pytest.approx(calls.duration.tolist())


def test_a_wait_for_a_batch_is_no_part_of_its_call() -> None:
    """It ends with the delay of the first request, or with the request that fills the batch."""
    trial = build_trial([0.0, 1.0, 1.05, 2.0], [0.3, 0.25, 0.2, 0.3], [1, 2, 1])
    calls = calibration.read_calls(build_server(max_delay=0.1), trial)

    assert [0.75, 0.85] == pytest.approx(calls.pause.tolist())
    assert [0.2, 0.2] == pytest.approx(calls.duration.tolist())


def test_it_predicts_a_server_whose_calls_are_slower_after_a_pause() -> None:
    """From loads at other rates than its capacity, which stored samples exceed by far."""
    stored, real = build_server(), build_real_server()
    true = queueing.find_capacity(real, DEADLINE, QUANTILE, 1).rate
    simulated = queueing.find_capacity(stored, DEADLINE, QUANTILE, 0).rate
    server = calibration.calibrate(stored, [serve(real, 0.4 * true, 5), serve(real, 0.8 * true, 6)])
    rate = queueing.find_capacity(server, DEADLINE, QUANTILE, 0).rate

    assert simulated > 1.1 * true
    assert true == pytest.approx(rate, rel=0.05)
    assert 0.0 == server.pauses[0]
    assert "1.05 times as long in a row and 2.0" in calibration.describe(stored, server)


def test_a_size_that_was_hardly_called_is_slower_as_the_others_were() -> None:
    """Its stored samples are scaled."""
    stored = build_server()
    (trial,) = [serve(build_server(1.2), 5.0, 3, requests=400)]
    server = calibration.calibrate(stored, [trial])

    assert 1.2 == pytest.approx(float(np.concatenate(server.rested[0][1]).mean()) / STORED[2], rel=0.03)


def test_a_load_without_pauses_has_none() -> None:
    """Every call then takes as long as a call in a row."""
    server = calibration.calibrate(build_server(), [serve(build_server(1.1), 1000.0, 3, requests=400)])

    assert ((), ()) == (server.pauses, server.rested)
    assert "after a pause" not in calibration.describe(build_server(), server)
