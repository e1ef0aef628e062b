"""A server with dynamic batching as arithmetic on NumPy arrays: Poisson arrivals, one queue, one call at a time.

When the server is free it takes the requests that wait, at most as many as its largest batch size, and runs them at the
smallest batch size that holds them. With a delay it waits for a fuller batch, until its first request has waited so
long. A call takes as long as a stored sample of its batch size, or as a call in a server after a similar pause
(`ngbkit.metrics.serving.calibration`).

Many simulations advance side by side, as lanes of arrays: each step is one call of every lane.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from ngbkit.metrics.arrays import Floats

# Requests of a lane; more where the deadline is many calls long, since a queue then takes long to settle.
_REQUESTS, _MOST_REQUESTS, _DEADLINES = 4000, 12000, 10
# The share of them, at the start of a lane, that finds the queue of an empty server and is left out.
_WARM_UP = 0.1
# Arrival sequences of a point estimate.
_SEQUENCES = 16
# Samples of a stream of service times: a power of two, since streams repeat.
_STREAM, _SHORT_STREAM = 2048, 512
# Requests that choose among servers.
_QUICK_REQUESTS = 1500
_CURVE_REQUESTS = 1500
# The rates of the first search, as shares of the highest throughput; the second divides one step of it.
_COARSE, _FINE = 12, 6
# Replicates of the bootstrap and of its own noise, their requests, and their rates over the capacity.
_REPLICATES, _COPIES, _REPLICATE_REQUESTS = 96, 32, 2500
_RATES = (0.4, 0.7, 0.85, 1.0, 1.15, 1.4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What serves requests: its batch sizes, in rising order, and the measured rounds of calls of each, in seconds."""

    sizes: tuple[int, ...]
    rounds: tuple[tuple[Floats, ...], ...]
    # How long the first request of a batch that is not full waits for others, in seconds.
    max_delay: float = 0.0
    # Pauses before a call, in rising order, in seconds; and, for each, the rounds by size of calls after a longer one.
    pauses: tuple[float, ...] = ()
    rested: tuple[tuple[tuple[Floats, ...], ...], ...] = ()

    @property
    def columns(self) -> tuple[tuple[Floats, ...], ...]:
        """The rounds of each size without a pause and after each of the pauses, one size after the other."""
        return tuple(rounds for by_pause in zip(self.rounds, *self.rested, strict=True) for rounds in by_pause)

    @property
    def choices(self) -> NDArray[np.intp]:
        """By the number of requests of a batch, from 0: which of the sizes runs them."""
        counts = np.arange(self.sizes[-1] + 1)
        return np.searchsorted(self.sizes, np.maximum(counts, 1))

    def limit(self, largest: int) -> Server:
        """This server with batches of at most that size."""
        count = sum(size <= largest for size in self.sizes)
        rested = tuple(rounds[:count] for rounds in self.rested)
        return replace(self, sizes=self.sizes[:count], rounds=self.rounds[:count], rested=rested)

    @property
    def throughput(self) -> float:
        """The requests per second of full batches without a pause, of the best size: no higher rate can be served."""
        means = (float(np.concatenate(rounds).mean()) for rounds in self.rounds)
        return max(size / mean for size, mean in zip(self.sizes, means, strict=True))

    def compute_unloaded(self, quantile: float) -> float:
        """Compute the quantile of the latency of a request that finds the server idle, and no other follows."""
        waiting = self.max_delay if self.sizes[-1] > 1 else 0.0
        return waiting + float(np.quantile(np.concatenate(self.columns[len(self.pauses)]), quantile))


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The requests of each lane: their latencies, ``(lanes, requests)``, in seconds, and the calls behind them."""

    latency: Floats
    calls: NDArray[np.intp]
    # The share of the time in which the server was busy.
    busy: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The highest rate that keeps a deadline, in requests per second, and the state of the server at that rate."""

    rate: float
    # The standard deviation of the logarithm of the rate, of the random arrivals and service times alone.
    monte_carlo: float = 0.0
    requests_per_call: float = math.nan
    busy: float = math.nan


def draw_arrivals(sequences: int, requests: int, generator: np.random.Generator) -> Floats:
    """Draw Poisson arrivals at a rate of 1, ``(sequences, requests)``; at another rate they are divided by it."""
    return np.cumsum(generator.exponential(size=(sequences, requests)), axis=-1)


def draw_streams(
    server: Server, count: int, generator: np.random.Generator, *, length: int = _STREAM, resample: bool = False
) -> Floats:
    """Draw `count` streams of service times of each column of a server, ``(count, columns, length)``.

    A stream has the measured rounds in random order, each with its samples in the order of time, again and again: so
    calls depend on the call before them as they did in a round. With `resample` each stream has a bootstrap resample of
    the rounds, as many as there are.
    """
    streams = np.empty((count, len(server.columns), length))
    for column, rounds in enumerate(server.columns):
        samples = np.concatenate(rounds)
        sizes = np.array([len(part) for part in rounds])
        starts = np.cumsum(sizes) - sizes
        for row in range(count):
            chosen = generator.integers(0, len(rounds), len(rounds)) if resample else np.arange(len(rounds))
            passes = -(-length // max(1, int(sizes[chosen].sum())))
            order = np.concatenate([generator.permutation(chosen) for _ in range(passes)])
            lengths = sizes[order]
            offsets = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            streams[row, column] = samples[(np.repeat(starts[order], lengths) + offsets)[:length]]
    return streams


def simulate(
    server: Server,
    rates: Floats,
    arrivals: Floats,
    streams: Floats,
    *,
    sequence: NDArray[np.intp],
    stream: NDArray[np.intp],
    limits: NDArray[np.intp] | None = None,
) -> Served:
    """Simulate a server at each of `rates`, ``(lanes,)``, in requests per second.

    `arrivals` are those of `draw_arrivals`, `streams` those of `draw_streams`; `sequence` and `stream`, ``(lanes,)``,
    choose one of each per lane, so that lanes differ only in what they compare. `limits`, ``(lanes,)``, are the largest
    batches; by default all sizes are used.
    """
    count, requests = arrivals.shape
    columns, length = streams.shape[1:]
    lanes, pauses = len(rates), np.array(server.pauses)
    choices = server.choices
    largest = np.full(lanes, server.sizes[-1]) if limits is None else limits
    # One sorted array of all sequences; within a lane, time is in mean distances of arrivals.
    offsets = np.concatenate([[0.0], np.cumsum(arrivals[:-1, -1] + 1)])
    times = (arrivals + offsets[:, None]).ravel()
    delay = np.where(largest > 1, server.max_delay * rates, 0.0)
    waits = bool(delay.any())
    head, last = sequence * requests, (sequence + 1) * requests
    free = offsets[sequence]
    flat, base = streams.ravel(), stream * columns
    used = np.zeros(lanes * columns, dtype=np.intp)
    counters = np.arange(lanes) * columns
    ends, batches = [], []
    busy = np.zeros(lanes)
    while True:
        first = times[np.minimum(head, last - 1)]
        start = np.maximum(free, first)
        if waits:
            fills = head + (largest - 1)
            full = np.where(fills < last, times[np.minimum(fills, last - 1)], np.inf)
            start = np.maximum(start, np.minimum(first + delay, full))
        end = np.minimum(np.minimum(times.searchsorted(start, side="right"), head + largest), last)
        batch = end - head
        if not batch.any():
            break
        column = choices[batch]
        if len(pauses):
            column = column * (len(pauses) + 1) + pauses.searchsorted((start - free) / rates)
        place = used[counters + column]
        used[counters + column] = (place + 1) & (length - 1)
        service = flat[(base + column) * length + place] * rates
        free = start + service
        busy += service * (batch > 0)
        ends.append(free)
        batches.append(batch)
        head = end
    completion = np.repeat(np.array(ends).T.ravel(), np.array(batches).T.ravel()).reshape(lanes, requests)
    latency = (completion - times.reshape(count, requests)[sequence]) / rates[:, None]
    return Served(
        latency=latency,
        calls=np.count_nonzero(batches, axis=0),
        busy=busy / (completion[:, -1] - offsets[sequence]),
    )


def choose_limit(server: Server, deadline: float, quantile: float, seed: int) -> Server:
    """Choose the largest batch with which a server serves most: padding may cost more than a fuller batch saves."""
    if len(server.sizes) == 1:
        return server
    generator = np.random.default_rng([seed, 4])
    sequences, rates = 2, server.throughput * np.arange(1, _COARSE + 1) / _COARSE
    arrivals = draw_arrivals(sequences, _QUICK_REQUESTS, generator)
    streams = draw_streams(server, sequences, generator, length=_SHORT_STREAM)
    lanes = np.tile(np.arange(sequences), len(rates) * len(server.sizes))
    served = simulate(
        server,
        np.tile(np.repeat(rates, sequences), len(server.sizes)),
        arrivals,
        streams,
        sequence=lanes,
        stream=lanes,
        limits=np.repeat(server.sizes, len(rates) * sequences),
    )
    latency = np.quantile(served.latency.reshape(len(server.sizes), len(rates), -1), quantile, axis=-1)
    capacities = []
    for size, row in zip(server.sizes, latency, strict=True):
        limited = server.limit(size)
        curve = np.concatenate([[min(limited.compute_unloaded(quantile), row[0])], row])
        capacities.append(min(interpolate_rate(np.concatenate([[0.0], rates]), curve, deadline), limited.throughput))
    return server.limit(server.sizes[int(np.argmax(capacities))])


def find_capacity(server: Server, deadline: float, quantile: float, seed: int) -> Capacity:
    """Find the highest rate up to which that quantile of the latency of requests keeps the deadline; both in seconds.

    Where a request misses it that finds the server idle, the rate is 0. A server whose calls are slow after a pause may
    miss it at a low rate and keep it at a higher one, which is then the answer.
    """
    is_late = server.compute_unloaded(quantile) > deadline
    if is_late and not server.pauses:
        return Capacity(rate=0.0)
    generator = np.random.default_rng(seed)
    limit = server.throughput
    requests = int(np.clip(_DEADLINES * deadline * limit, _REQUESTS, _MOST_REQUESTS))
    arrivals = draw_arrivals(_SEQUENCES, requests, generator)
    streams = draw_streams(server, _SEQUENCES, generator)

    def compute(rates: Floats, sequences: int) -> tuple[Floats, Served]:
        """The latencies at each rate and of each sequence, ``(rates, sequences, requests)``, without the first ones."""
        lanes = np.tile(np.arange(sequences), len(rates))
        served = simulate(server, np.repeat(rates, sequences), arrivals, streams, sequence=lanes, stream=lanes)
        settled = served.latency[:, int(_WARM_UP * requests) :]
        return settled.reshape(len(rates), sequences, -1), served

    coarse = limit * np.arange(1, _COARSE + 1) / _COARSE
    latency, _ = compute(coarse, _SEQUENCES // 4)
    pooled = np.quantile(latency.reshape(_COARSE, -1), quantile, axis=-1)
    step = int(np.flatnonzero(pooled <= deadline).max(initial=-1)) + 1 if is_late else _count_meeting(pooled, deadline)
    if is_late and not step:
        return Capacity(rate=0.0)
    low, high = (limit * min(number, _COARSE) / _COARSE for number in (step, step + 1))
    # One rate on either side: a few sequences may have missed the step by as much.
    fine = np.linspace(max(low - (high - low) / 2, limit / 1000), min(high + limit / _COARSE / 2, limit), _FINE)
    latency, served = compute(fine, _SEQUENCES)
    pooled = np.quantile(latency.reshape(_FINE, -1), quantile, axis=-1)
    # Lower rates may miss the deadline too: see above.
    first = int(np.argmax(pooled <= deadline)) if is_late else 0
    rate = interpolate_rate(fine[first:], pooled[first:], deadline)
    single = np.quantile(latency[first:], quantile, axis=-1).T
    rates = np.array([interpolate_rate(fine[first:], row, deadline) for row in single])
    nearest = int(np.abs(fine - rate).argmin())
    lanes = slice(nearest * _SEQUENCES, (nearest + 1) * _SEQUENCES)
    return Capacity(
        rate=rate,
        monte_carlo=float(np.log(rates).std(ddof=1) / math.sqrt(len(rates))),
        requests_per_call=requests * _SEQUENCES / int(served.calls[lanes].sum()),
        busy=float(served.busy[lanes].mean()),
    )


def estimate_deviation(
    server: Server, capacity: Capacity, deadline: float, quantile: float, process_sd: float, seed: int
) -> tuple[float, float]:
    """Estimate the standard deviation of the logarithm of a capacity, and in which share of replicates it is 0.

    Replicates resample the rounds of each size, and the process of each differs by a factor whose logarithm has the
    standard deviation `process_sd`. What replicates without either differ by is the noise of so few requests, and is
    subtracted.
    """
    generator = np.random.default_rng([seed, 1])
    sequences = 8
    requests = int(np.clip(_DEADLINES * deadline * server.throughput, _REPLICATE_REQUESTS, _REQUESTS))
    arrivals = draw_arrivals(sequences, requests, generator)
    copies = draw_streams(server, _COPIES, generator, length=_SHORT_STREAM)
    resampled = draw_streams(server, _REPLICATES, generator, length=_SHORT_STREAM, resample=True)
    resampled *= _draw_processes(server, _REPLICATES, process_sd, generator)
    streams = np.concatenate([copies, resampled])
    count = len(streams)
    rates = capacity.rate * np.array(_RATES)
    lanes = np.tile(np.arange(count), len(rates))
    served = simulate(server, np.repeat(rates, count), arrivals, streams, sequence=lanes % sequences, stream=lanes)
    settled = served.latency[:, int(_WARM_UP * requests) :]
    loaded = np.quantile(settled, quantile, axis=-1).reshape(len(rates), count).T
    waiting = server.max_delay if server.sizes[-1] > 1 else 0.0
    unloaded = waiting + np.quantile(streams[:, len(server.pauses)], quantile, axis=-1)
    points = np.concatenate([[0.0], rates])
    curves = np.concatenate([np.minimum(unloaded, loaded[:, 0])[:, None], loaded], axis=1)
    capacities = np.array([interpolate_rate(points, curve, deadline) for curve in curves])
    noise, replicates = capacities[:_COPIES], capacities[_COPIES:]
    share = float(np.mean(replicates <= 0))
    spread, noise_spread = (_compute_spread(np.log(part[part > 0])) for part in (replicates, noise))
    return math.sqrt(max(0.0, spread**2 - noise_spread**2)), share


def compute_curve(
    server: Server, rates: Floats, quantile: float, process_sd: float, level: float, seed: int
) -> tuple[Floats, Floats, Floats]:
    """The quantile of the latency at each rate, and the ends of its interval: three of ``(rates,)``, in seconds."""
    generator = np.random.default_rng([seed, 2])
    sequences, replicates = 8, 16
    arrivals = draw_arrivals(sequences, _CURVE_REQUESTS, generator)
    exact = draw_streams(server, sequences, generator)
    resampled = draw_streams(server, replicates, generator, length=_STREAM, resample=True)
    resampled *= _draw_processes(server, replicates, process_sd, generator)
    streams = np.concatenate([exact, resampled])
    lanes = np.tile(np.arange(len(streams)), len(rates))
    served = simulate(
        server, np.repeat(rates, len(streams)), arrivals, streams, sequence=lanes % sequences, stream=lanes
    )
    settled = served.latency[:, int(_WARM_UP * _CURVE_REQUESTS) :].reshape(len(rates), len(streams), -1)
    middle = np.quantile(settled[:, :sequences].reshape(len(rates), -1), quantile, axis=-1)
    logs = np.log(np.quantile(settled, quantile, axis=-1))
    spread, noise = (
        np.array([_compute_spread(row) for row in part]) for part in (logs[:, sequences:], logs[:, :sequences])
    )
    half = NormalDist().inv_cdf(0.5 + level / 2) * np.sqrt(np.maximum(0.0, spread**2 - noise**2))
    return middle, middle * np.exp(-half), middle * np.exp(half)


def _draw_processes(server: Server, count: int, process_sd: float, generator: np.random.Generator) -> Floats:
    """Draw the factors by which the calls of each size differ in other processes, ``(count, columns, 1)``."""
    factors = np.exp(process_sd * generator.standard_normal((count, len(server.sizes), 1)))
    return np.repeat(factors, len(server.pauses) + 1, axis=1)


def interpolate_rate(rates: Floats, latency: Floats, deadline: float) -> float:
    """The rate up to which a curve of latencies over rising rates keeps a deadline; the last if it always does.

    The logarithm of the latency is linear between two rates, which may be followed below the first, but not below 0.
    """
    meeting = _count_meeting(latency, deadline)
    if meeting == len(rates):
        return float(rates[-1])
    if meeting == 0 and rates[0] == 0:
        return 0.0
    upper = max(meeting, 1)
    low, high = math.log(latency[upper - 1]), math.log(latency[upper])
    share = (math.log(deadline) - low) / (high - low) if high > low else 0.0
    rate = float(rates[upper - 1] + share * (rates[upper] - rates[upper - 1]))
    return max(rate, float(rates[0]) / 2) if meeting == 0 else rate


def _count_meeting(latency: Floats, deadline: float) -> int:
    """Count the latencies that keep the deadline before the first that misses it."""
    missed = np.flatnonzero(latency > deadline)
    return int(missed[0]) if len(missed) else len(latency)


def _compute_spread(values: Floats) -> float:
    """The standard deviation of most of the values: half the distance of the quantiles that enclose 68 %."""
    if len(values) < 2:
        return 0.0
    low, high = np.quantile(values, (0.159, 0.841))
    return float(high - low) / 2


def split_rounds(samples: Floats, numbers: Sequence[float] | Floats | None) -> tuple[Floats, ...]:
    """Split samples, NaN-padded, into their rounds in the order of time; without numbers each sample is a round."""
    values = np.asarray(samples, float)
    present = ~np.isnan(values)
    if numbers is None:
        return tuple(values[present][:, None])
    labels = np.asarray(numbers, float)[present]
    return tuple(values[present][labels == label] for label in np.unique(labels))
