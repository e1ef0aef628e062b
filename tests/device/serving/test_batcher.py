"""The server of a load test, with a fake clock."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from ngbkit.device.serving import batcher
from ngbkit.device.serving.generator import REQUEST


@dataclass
class Clock:
    """A clock that only calls and waits advance."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Schedule:
    """A source whose requests come at their times."""

    clock: Clock
    times: Sequence[float]
    sent: int = 0
    closed: bool = False

    def receive(self, timeout_s: float | None) -> list[float]:
        """Advance to the next request, if it comes within the timeout."""
        left = self.times[self.sent :]
        if not left:
            self.closed = True
            return []
        if left[0] > self.clock.now:
            self.clock.now = left[0] if timeout_s is None else min(left[0], self.clock.now + timeout_s)
        arrived = [time for time in left if time <= self.clock.now]
        self.sent += len(arrived)
        return arrived


@dataclass
class Network:
    """Calls of each batch size that take so long, and a log of them."""

    clock: Clock
    log: list[tuple[float, int]] = field(default_factory=list)

    def build_call(self, size: int, seconds: float):
        def call() -> None:
            self.log.append((round(self.clock.now, 9), size))
            self.clock.now += seconds

        return call


def serve(times: Sequence[float], seconds: dict[int, float], max_delay_s: float = 0.0):
    clock = Clock()
    network = Network(clock)
    calls = {size: network.build_call(size, value) for size, value in seconds.items()}
    served = batcher.serve(Schedule(clock, times), calls, max_delay_s=max_delay_s, clock=clock)
    return served, network.log


def test_a_free_server_takes_what_waits() -> None:
    """What comes during a call is the next batch, at the smallest size that holds it; latencies are of the schedule."""
    served, log = serve([1.0, 1.1, 1.2, 1.3, 9.0], {1: 1.0, 2: 1.5, 4: 2.0})

    assert [(1.0, 1), (2.0, 4), (9.0, 1)] == log
    assert [1.0, 2.9, 2.8, 2.7, 1.0] == pytest.approx(served.latency_s)
    assert ([1, 3, 1], 4.0) == (served.batches, pytest.approx(served.busy_s))


def test_no_batch_is_larger_than_the_largest_size() -> None:
    """The rest waits for the next call."""
    served, log = serve([0.0] * 5, {1: 1.0, 2: 1.0})

    assert [2, 2, 1] == [size for _, size in log]
    assert [1.0, 1.0, 2.0, 2.0, 3.0] == pytest.approx(served.latency_s)


def test_a_delay_waits_for_a_fuller_batch() -> None:
    """Until the batch is full, or the first of it has waited so long; at the end for nothing."""
    _, log = serve([0.0, 0.3, 5.0, 9.0], {1: 0.1, 2: 0.1}, max_delay_s=0.5)

    assert [(0.3, 2), (5.5, 1), (9.0, 1)] == log


def test_it_serves_as_the_simulation_does() -> None:
    """The same arrivals and durations have the same latencies in both."""
    from ngbkit.metrics.serving import queueing

    server = queueing.Server(sizes=(1, 3), rounds=((np.full(4, 0.01),), (np.full(4, 0.02),)), max_delay=0.003)
    arrivals = queueing.draw_arrivals(1, 200, np.random.default_rng(0))
    streams = queueing.draw_streams(server, 1, np.random.default_rng(0), length=512)
    zero = np.zeros(1, dtype=int)
    simulated = queueing.simulate(server, np.array([90.0]), arrivals, streams, sequence=zero, stream=zero).latency[0]

    served, _ = serve((arrivals[0] / 90).tolist(), {1: 0.01, 3: 0.02}, max_delay_s=0.003)

    # At the end the source closes, and the last request no longer waits for others.
    assert simulated[:-3] == pytest.approx(served.latency_s[:-3])


def test_a_pipe_may_end_a_chunk_within_a_request() -> None:
    """The rest of the request is read with the next chunk; the end of the writer closes the source."""
    read, write = os.pipe()
    source = batcher.Pipe(read)
    data = REQUEST.pack(1.5) + REQUEST.pack(2.5)
    os.write(write, data[:11])
    first = source.receive(0)
    os.write(write, data[11:])
    second = source.receive(0)
    nothing = source.receive(0)
    os.close(write)
    end = source.receive(None)
    os.close(read)

    assert ([1.5], [2.5], [], []) == (first, second, nothing, end)
    assert source.closed
