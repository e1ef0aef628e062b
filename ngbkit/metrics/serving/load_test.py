"""A capacity by real load: trials at several rates, and the rate at which the server keeps its deadline.

The trials are compared with a simulation of the very same arrivals by a server that earlier trials calibrated
(`ngbkit.metrics.serving.calibration`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngbkit.device.serving.load import ServedTrial
from ngbkit.metrics.arrays import Floats
from ngbkit.metrics.serving import calibration, queueing
from ngbkit.metrics.serving.queueing import Server

# Factors of the rate at which the simulation is compared with a trial, and its streams of service times.
_FACTORS = np.exp(np.linspace(-1.2, 1.2, 41))
_STREAMS = 6
# The share of its throughput at which a server has pauses.
_SPARE = 0.5
# Logarithms of latencies that differ by less are of one level.
_LEVEL = 0.01
# Student's t at 97.5 % by degrees of freedom.
_STUDENT = {1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228}
# A generator that is late by more than this share of the deadline has not offered what it says.
LATE = 0.05
# The fewest requests of a trial beyond its quantile that tell it.
_FEWEST_LATE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTrial:
    """Requests at one rate, for some seconds; times in seconds."""

    rate: float
    requests: int
    # The quantile of the latency, and the share of requests that missed the deadline.
    latency: float
    missed: float
    calls: int
    busy: float
    # How late the generator sent 99 % of its requests at most, and the share of a core that it used.
    lag: float
    generator_cpu: float
    disturbed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTest:
    """The measured capacity of one network with one compiler, in requests per second, with a 95 % interval."""

    labels: Mapping[str, Any]
    # The simulated capacities: from the stored samples alone, and of the server that a load of its own calibrated.
    simulated: float
    calibrated: float
    rate: float
    low: float
    high: float
    settled: bool
    # The highest rate of a trial below the first that missed the deadline, and that one; None without any.
    highest_met: float | None
    lowest_missed: float | None
    trials: tuple[LoadTrial, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What is simulated before a check: servers from stored samples and from calls in a server, and their rates."""

    stored: Server
    simulated: float
    server: Server
    calibrated: float

    @property
    def reference(self) -> tuple[Server, float]:
        """The server with which trials are compared, and its capacity: the calibrated one, if it has any."""
        return (self.server, self.calibrated) if self.calibrated > 0 else (self.stored, self.simulated)

    @property
    def rate(self) -> float:
        """The rate around which to check: without a calibrated capacity, one that leaves the server time for pauses."""
        return self.calibrated or min(self.simulated, _SPARE * self.server.throughput)


def simulate_calibrated(
    stored: Server, simulated: float, trials: Sequence[ServedTrial], deadline: float, quantile: float, seed: int
) -> Expected:
    """Simulate the capacity of a server once more, with the durations of calls in trials of a real load."""
    server = calibration.calibrate(stored, trials)
    rate = queueing.find_capacity(server, deadline, quantile, seed).rate
    return Expected(stored=stored, simulated=simulated, server=server, calibrated=rate)


def compute_stretch(server: Server, rate: float, arrivals: Floats, latency: float, quantile: float, seed: int) -> float:
    """Compute the factor of the rate at which the simulation has the latency that a trial measured.

    The simulation has the very arrivals of the trial, in seconds, so that their randomness does not count. Above 1, the
    real server is slower: at its rate it behaves as the simulated one at a higher rate. Where the latency hardly
    depends on the rate, several factors have it, or none: it is the one nearest to 1, or that of the nearest latency.
    """
    generator = np.random.default_rng([seed, 3])
    streams = queueing.draw_streams(server, _STREAMS, generator)
    lanes = np.tile(np.arange(_STREAMS), len(_FACTORS))
    served = queueing.simulate(
        server,
        np.repeat(rate * _FACTORS, _STREAMS),
        (arrivals * rate)[None],
        streams,
        sequence=np.zeros(len(lanes), dtype=np.intp),
        stream=lanes,
    )
    logs = np.log(np.quantile(served.latency, quantile, axis=-1)).reshape(len(_FACTORS), _STREAMS).mean(axis=-1)
    excess, factors = logs - math.log(latency), np.log(_FACTORS)
    before = np.flatnonzero((excess[:-1] < 0) != (excess[1:] < 0))
    shares = excess[before] / (excess[before] - excess[before + 1])
    crossings = factors[before] + shares * (factors[before + 1] - factors[before])
    limit = _LEVEL if len(crossings) else np.abs(excess).min() + _LEVEL
    candidates = np.concatenate([crossings, factors[np.abs(excess) <= limit]])
    return float(np.exp(candidates[np.abs(candidates).argmin()]))


def estimate_rate(capacity: float, stretches: Sequence[float]) -> tuple[float, float, float]:
    """Estimate the real capacity and its 95 % interval from that of the simulated server and the stretches of trials.

    There is no interval with fewer than two of them.
    """
    logs = np.log(stretches)
    rate = capacity / math.exp(float(np.mean(logs)))
    if len(logs) < 2:
        return rate, math.nan, math.nan
    freedom = min(len(logs) - 1, max(_STUDENT))
    factor = math.exp(_STUDENT[freedom] * float(np.std(logs, ddof=1)) / math.sqrt(len(logs)))
    return rate, rate / factor, rate * factor


def assess(
    labels: Mapping[str, Any],
    expected: Expected,
    deadline: float,
    quantile: float,
    measured: Sequence[tuple[LoadTrial, Floats]],
    seed: int = 0,
) -> LoadTest:
    """Assess the trials of a load test, each with the times of its arrivals."""
    server, capacity = expected.reference
    stretches = [
        compute_stretch(server, trial.rate, arrivals, trial.latency, quantile, seed) for trial, arrivals in measured
    ]
    trials = tuple(sorted((trial for trial, _ in measured), key=lambda trial: trial.rate))
    rate, low, high = estimate_rate(capacity, stretches)
    missing = [trial.rate for trial in trials if trial.latency > deadline]
    meeting = [
        trial.rate for trial in trials if trial.latency <= deadline and trial.rate < min(missing, default=math.inf)
    ]
    highest_met, lowest_missed = max(meeting, default=None), min(missing, default=None)
    return LoadTest(
        labels=dict(labels),
        simulated=expected.simulated,
        calibrated=expected.calibrated,
        rate=rate,
        low=low,
        high=high,
        settled=2 * sum(trial.disturbed for trial in trials) < len(trials),
        highest_met=highest_met,
        lowest_missed=lowest_missed,
        trials=trials,
        notes=tuple(_list_notes(labels, expected, trials, deadline, quantile, highest_met, lowest_missed)),
    )


def build_trial(served: ServedTrial, deadline: float, quantile: float) -> tuple[LoadTrial, Floats]:
    """Summarize a trial of a device; return it with the times of its arrivals."""
    latency, arrivals = np.asarray(served.latency_s), np.asarray(served.arrivals_s)
    trial = LoadTrial(
        rate=served.rate,
        requests=len(latency),
        latency=float(np.quantile(latency, quantile)),
        missed=float(np.mean(latency > deadline)),
        calls=len(served.batches),
        busy=served.busy_s / max(served.seconds, float((arrivals + latency).max())),
        lag=served.lag_s,
        generator_cpu=served.generator_cpu_s / served.seconds,
        disturbed=served.disturbed,
    )
    return trial, arrivals


def _list_notes(
    labels: Mapping[str, Any],
    expected: Expected,
    trials: Sequence[LoadTrial],
    deadline: float,
    quantile: float,
    highest_met: float | None,
    lowest_missed: float | None,
) -> list[str]:
    name = f"{labels['workload']} {labels['compiler']}"
    notes = [f"{name}: {calibration.describe(expected.stored, expected.server)}"]
    if expected.calibrated <= 0:
        notes.append(f"{name}: calibrated, an idle server misses the deadline: trials are compared with stored samples")
    fewest = min(trial.requests for trial in trials)
    if fewest * (1 - quantile) < _FEWEST_LATE:
        notes.append(
            f"{name}: p{100 * quantile:g} of {fewest} requests a trial is of its slowest few; give more --seconds"
        )
    if highest_met is None or lowest_missed is None:
        side = "each tested rate keeps" if lowest_missed is None else "no tested rate keeps"
        notes.append(f"{name}: {side} the deadline, so the measured rate lies beyond them and is extrapolated")
    disturbed = sum(trial.disturbed for trial in trials)
    if disturbed:
        notes.append(f"{name}: other work disturbed {disturbed} of {len(trials)} trials")
    lag = max(trial.lag for trial in trials)
    if lag > LATE * deadline:
        notes.append(f"{name}: the generator was up to {1e3 * lag:.1f} ms late; latencies count from its schedule")
    return notes
