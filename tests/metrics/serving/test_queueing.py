"""The simulation of a server: against queueing theory, and against an event loop that is easy to read."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from ngbkit.metrics.serving import queueing
from ngbkit.metrics.serving.queueing import Server


def build_server(*seconds: float, sizes: tuple[int, ...] = (1,), rounds: int = 8, max_delay: float = 0.0) -> Server:
    """A server whose calls all take the same time, by batch size."""
    parts = tuple(tuple(np.full(4, value) for _ in range(rounds)) for value in seconds)
    return Server(sizes=sizes, rounds=parts, max_delay=max_delay)


def build_noisy_server(*seconds: float, sizes: tuple[int, ...], max_delay: float = 0.0) -> Server:
    generator = np.random.default_rng(7)
    parts = tuple(tuple(value * generator.lognormal(0, 0.1, 8) for _ in range(12)) for value in seconds)
    return Server(sizes=sizes, rounds=parts, max_delay=max_delay)


def simulate(server: Server, rate: float, *, lanes: int = 8, requests: int = 20_000, streams=None, seed: int = 0):
    """The latencies of lanes with arrivals of their own, without those of the first tenth."""
    generator = np.random.default_rng(seed)
    arrivals = queueing.draw_arrivals(lanes, requests, generator)
    streams = queueing.draw_streams(server, lanes, generator) if streams is None else streams
    numbers = np.arange(lanes)
    served = queueing.simulate(server, np.full(lanes, rate), arrivals, streams, sequence=numbers, stream=numbers)
    return served.latency[:, requests // 10 :], arrivals, served


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_equal_calls_wait_as_theory_says(load: float) -> None:
    """M/D/1: the mean wait is rho / (2 (1 - rho)) calls, and the server is busy for the share rho."""
    latency, _, served = simulate(build_server(0.01), load / 0.01)

    assert load / (2 * (1 - load)) == pytest.approx(latency.mean() / 0.01 - 1, rel=0.06)
    assert load == pytest.approx(served.busy.mean(), rel=0.02)


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.99])
def test_exponential_calls_take_as_long_as_theory_says(quantile: float) -> None:
    """M/M/1: the time in the system is exponential with the rate mu - lambda."""
    times = np.random.default_rng(1).exponential(0.01, (8, 1, 1 << 15))
    latency, _, _ = simulate(build_server(0.01), 60, streams=times, requests=15_000)

    assert -math.log(1 - quantile) / (100 - 60) == pytest.approx(np.quantile(latency, quantile), rel=0.08)


def serve_plainly(server: Server, times: np.ndarray, stream: np.ndarray, limit: int) -> list[float]:
    """The latency of each request, one event after the other."""
    free, done, used = 0.0, [], dict.fromkeys(server.sizes, 0)
    while len(done) < len(times):
        head = len(done)
        start = max(free, times[head])
        if limit > 1 and server.max_delay:
            due = times[head] + server.max_delay
            filled = times[head + limit - 1] if head + limit <= len(times) else math.inf
            start = max(start, min(due, filled))
        batch = [time for time in times[head : head + limit] if time <= start]
        size = min(size for size in server.sizes if size >= len(batch))
        free = start + stream[server.sizes.index(size), used[size]]
        used[size] += 1
        done += [free - time for time in batch]
    return done


@pytest.mark.parametrize("max_delay", [0.0, 0.004])
@pytest.mark.parametrize("rate", [20.0, 150.0, 400.0])
def test_batches_are_those_of_a_plain_event_loop(rate: float, max_delay: float) -> None:
    """Every request of every lane has the same latency, whatever the largest batch of the lane."""
    server = build_noisy_server(0.008, 0.011, 0.02, sizes=(1, 2, 5), max_delay=max_delay)
    generator = np.random.default_rng(3)
    arrivals = queueing.draw_arrivals(2, 300, generator)
    streams = queueing.draw_streams(server, 3, generator, length=512)
    limits, sequence, stream = np.array([1, 2, 5, 5]), np.array([0, 1, 0, 1]), np.array([0, 1, 2, 0])

    served = queueing.simulate(
        server, np.full(4, rate), arrivals, streams, sequence=sequence, stream=stream, limits=limits
    )

    for lane in range(4):
        expected = serve_plainly(server, arrivals[sequence[lane]] / rate, streams[stream[lane]], int(limits[lane]))
        np.testing.assert_allclose(expected, served.latency[lane], rtol=1e-9)


def test_a_call_after_a_pause_takes_as_long_as_such_calls() -> None:
    """By the longest pause that is shorter than its own; without a pause as long as a call in a row."""
    in_a_row, short, long = ((np.full(4, value),) for value in (0.01, 0.02, 0.04))
    server = Server(sizes=(1,), rounds=(in_a_row,), pauses=(0.0, 0.5), rested=((short,), (long,)))
    arrivals = np.array([[1.0, 1.01, 1.3, 1.9]])
    streams = queueing.draw_streams(server, 1, np.random.default_rng(0), length=8)
    zero = np.zeros(1, dtype=int)

    served = queueing.simulate(server, np.ones(1), arrivals, streams, sequence=zero, stream=zero)

    assert [0.04, 0.04, 0.02, 0.04] == pytest.approx(served.latency[0].tolist())
    assert 0.04 == server.compute_unloaded(0.9)
    assert (1, 3, 8) == streams.shape
    assert server.limit(1) == server


def test_pauses_lower_a_capacity() -> None:
    """A server whose calls are twice as long after a pause keeps its deadline at a lower rate."""
    plain = build_noisy_server(0.01, 0.012, sizes=(1, 2))
    rested = tuple(tuple(2 * part for part in rounds) for rounds in plain.rounds)
    server = replace(plain, pauses=(0.0,), rested=(rested,))
    capacities = [queueing.find_capacity(part, 0.04, 0.95, 0) for part in (plain, server)]
    deviation, _ = queueing.estimate_deviation(server, capacities[1], 0.04, 0.95, 0.02, 0)

    assert capacities[1].rate < 0.95 * capacities[0].rate
    assert 0 < deviation < 0.1


def test_a_server_that_is_late_after_a_pause_keeps_its_deadline_while_it_is_busy() -> None:
    """At rates with few long pauses; without any such rate the capacity is 0."""
    plain = build_noisy_server(0.01, sizes=(1,))
    slow = tuple(tuple(4 * part for part in rounds) for rounds in plain.rounds)
    server = replace(plain, pauses=(0.0, 0.1), rested=(plain.rounds, slow))
    capacity = queueing.find_capacity(server, 0.044, 0.95, 0)
    hopeless = queueing.find_capacity(replace(plain, pauses=(0.0,), rested=(slow,)), 0.02, 0.95, 0)

    assert server.compute_unloaded(0.95) > 0.044
    assert 40 < capacity.rate < 100
    assert 0 == hopeless.rate


def test_a_stream_keeps_each_round_together() -> None:
    """Rounds are in random order, and the samples of each in theirs; none is left out."""
    rounds = tuple(np.array([10.0 * number, 10.0 * number + 1, 10.0 * number + 2]) for number in range(1, 6))
    server = Server(sizes=(1,), rounds=(rounds,))

    (stream,) = queueing.draw_streams(server, 1, np.random.default_rng(0), length=512)[:, 0]

    assert {tuple(stream[start : start + 3]) for start in range(0, 15, 3)} == {tuple(part) for part in rounds}
    resampled = queueing.draw_streams(server, 40, np.random.default_rng(0), length=512, resample=True)
    assert {len(np.unique(row)) for row in resampled[:, 0]} > {6, 9}


def test_the_capacity_is_where_the_quantile_meets_the_deadline() -> None:
    """A long simulation of other arrivals at that rate has the quantile at the deadline."""
    server = build_server(0.01)
    capacity = queueing.find_capacity(server, 0.05, 0.99, seed=0)
    latency, _, _ = simulate(server, capacity.rate, lanes=16, seed=9)

    assert 0.05 == pytest.approx(np.quantile(latency, 0.99), rel=0.08)
    assert 0 < capacity.monte_carlo < 0.02
    assert capacity.rate * 0.01 == pytest.approx(capacity.busy, rel=0.03)


def test_a_capacity_rises_with_the_deadline_up_to_the_throughput() -> None:
    """A deadline that even an idle server misses has none; a long one has all that full batches allow."""
    server = build_noisy_server(0.01, 0.03, sizes=(1, 4))
    rates = [queueing.find_capacity(server, deadline, 0.99, 0).rate for deadline in (0.01, 0.05, 0.1, 0.4, 20.0)]

    assert 0 == rates[0]
    assert sorted(rates) == rates
    assert len({*rates}) == len(rates)
    assert server.throughput == pytest.approx(rates[-1], rel=0.03)
    assert server.throughput >= rates[-1]


def test_the_largest_batch_is_the_one_that_serves_most() -> None:
    """Where a batch costs as much as its samples one by one, padding is a loss; where it costs less, a gain."""
    in_vain = build_noisy_server(0.01, 0.026, 0.08, sizes=(1, 2, 8))
    worth = build_noisy_server(0.01, 0.011, 0.012, sizes=(1, 2, 8))

    assert (1,) == queueing.choose_limit(in_vain, 0.1, 0.99, 0).sizes
    assert (1, 2, 8) == queueing.choose_limit(worth, 0.1, 0.99, 0).sizes


def test_a_delay_counts_on_an_idle_server() -> None:
    """A request that no other follows waits for it; with batches of one there is nothing to wait for."""
    assert 0.015 == pytest.approx(build_server(0.01, 0.02, sizes=(1, 2), max_delay=0.005).compute_unloaded(0.99))
    assert 0.01 == pytest.approx(build_server(0.01, max_delay=0.005).compute_unloaded(0.99))


def test_the_deviation_is_of_rounds_and_processes_alone() -> None:
    """Equal rounds of one process have none; that of processes is at least their own, since queues magnify it."""
    server = build_server(0.01)
    capacity = queueing.find_capacity(server, 0.05, 0.99, 0)

    exact, _ = queueing.estimate_deviation(server, capacity, 0.05, 0.99, 0.0, 0)
    wide, share = queueing.estimate_deviation(server, capacity, 0.05, 0.99, 0.05, 0)

    assert exact < 0.02
    assert 0.04 < wide < 0.2
    assert 0 == share


def test_a_deadline_that_some_replicates_miss_has_no_lower_end() -> None:
    """Calls that take the deadline but for a percent miss it in many processes."""
    server = build_server(0.0495)
    capacity = queueing.find_capacity(server, 0.05, 0.99, 0)

    _, share = queueing.estimate_deviation(server, capacity, 0.05, 0.99, 0.05, 0)

    assert 0.2 < share < 0.8


def test_rates_between_two_points() -> None:
    """The logarithm of the latency is linear; a curve that never crosses ends at its last rate."""
    rates = np.array([10.0, 20.0])

    assert 15 == pytest.approx(queueing.interpolate_rate(rates, np.array([1.0, 4.0]), 2.0))
    assert 20 == queueing.interpolate_rate(rates, np.array([1.0, 4.0]), 5.0)
    assert 0 == queueing.interpolate_rate(np.array([0.0, 20.0]), np.array([3.0, 4.0]), 2.0)


def test_rounds_are_split_and_padding_is_left_out() -> None:
    """NaN is no sample; without numbers each sample is a round."""
    samples = np.array([1.0, 2.0, np.nan, 3.0])

    assert [[1.0, 2.0], [3.0]] == [part.tolist() for part in queueing.split_rounds(samples, [0, 0, -1, 5])]
    assert [[1.0], [2.0], [3.0]] == [part.tolist() for part in queueing.split_rounds(samples, None)]
    assert () == queueing.split_rounds(np.array([np.nan]), [0])
