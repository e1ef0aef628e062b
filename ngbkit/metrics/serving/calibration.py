"""A server calibrated by a real load: how long calls take within it, after a pause and in a row.

Stored samples are of calls in a row, without a server around them. In a server a call often follows a pause, in which
threads and cores fell asleep and caches went cold, and each call begins later than it could: a process wakes, requests
are read. A load of its own, before any check, shows both. The duration of a call counts from when it could have begun,
which is when its first request came or the call before it ended, whichever was later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ngbkit.device.serving.load import ServedTrial
from ngbkit.metrics.arrays import Floats
from ngbkit.metrics.serving.queueing import Server

# The most classes of pauses, and the fewest calls in one; the fewest of one size of which durations are drawn.
_CLASSES, _CLASS_CALLS, _FEWEST = 4, 40, 24
# Calls that are drawn together, in the order of time, so that a slow spell remains one.
_ROUND = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The calls of a server in the order of time, each array ``(calls,)``; times in seconds."""

    # The number of its size among those of the server.
    size: NDArray[np.intp]
    # How long the server was idle before it, or waited for a batch.
    pause: Floats
    # From when it could have begun to its end.
    duration: Floats


def read_calls(server: Server, trial: ServedTrial) -> Calls:
    """Read the calls of a trial, from its requests; the first call, before which nothing was measured, is left out."""
    arrivals, latency, batches = (np.asarray(part) for part in (trial.arrivals_s, trial.latency_s, trial.batches))
    heads = np.cumsum(batches) - batches
    ends = arrivals[heads] + latency[heads]
    ready = arrivals[heads]
    if server.max_delay and server.sizes[-1] > 1:
        fills = heads + server.sizes[-1] - 1
        full = np.where(fills < len(arrivals), arrivals[np.minimum(fills, len(arrivals) - 1)], np.inf)
        ready = np.minimum(ready + server.max_delay, full)
    start = np.maximum(ready[1:], ends[:-1])
    return Calls(size=np.searchsorted(server.sizes, batches[1:]), pause=start - ends[:-1], duration=ends[1:] - start)


def calibrate(server: Server, trials: Sequence[ServedTrial]) -> Server:
    """Replace the durations of a server by those of its calls in trials of a real load, by size and pause.

    A size with few calls after a pause has its stored samples, slower by as much as the calls of all sizes were.
    """
    parts = [read_calls(server, trial) for trial in trials]
    calls = Calls(
        size=np.concatenate([part.size for part in parts]),
        pause=np.concatenate([part.pause for part in parts]),
        duration=np.concatenate([part.duration for part in parts]),
    )
    pauses = _choose_pauses(calls.pause[calls.pause > 0])
    classes = np.searchsorted(pauses, calls.pause)
    columns = [list(_list_rounds(server, calls, classes == number)) for number in range(len(pauses) + 1)]
    in_a_row, *rested = map(tuple, columns)
    return replace(server, rounds=in_a_row, pauses=pauses, rested=tuple(rested))


def describe(stored: Server, server: Server) -> str:
    """Describe how much longer calls of a calibrated server take than stored samples, of its smallest size."""
    before = _compute_mean(stored.rounds[0])
    texts = [f"{_compute_mean(server.rounds[0]) / before:.2f} times as long in a row"]
    if server.pauses:
        after = _compute_mean([part for rounds in server.rested for part in rounds[0]])
        texts.append(f"{after / before:.2f} times after a pause")
    return f"in a server, calls of batch {server.sizes[0]} take {' and '.join(texts)} as stored samples"


def _compute_mean(rounds: Sequence[Floats]) -> float:
    return float(np.concatenate(rounds).mean())


def _choose_pauses(pauses: Floats) -> tuple[float, ...]:
    """The bounds of classes of pauses with as many calls each, from 0; none without enough calls after a pause."""
    count = min(_CLASSES, len(pauses) // _CLASS_CALLS) or int(len(pauses) >= _FEWEST)
    bounds = np.quantile(pauses, np.arange(1, count) / count).tolist() if count > 1 else []
    return (0.0, *bounds) if count else ()


def _list_rounds(server: Server, calls: Calls, chosen: NDArray[np.bool_]) -> Iterator[tuple[Floats, ...]]:
    """The rounds of each size, of the chosen calls."""
    slowdown = _estimate_slowdown(server, calls, chosen if chosen.sum() >= _FEWEST else np.ones_like(chosen))
    for number, stored in enumerate(server.rounds):
        durations = calls.duration[chosen & (calls.size == number)]
        if len(durations) >= _FEWEST:
            yield tuple(np.array_split(durations, -(-len(durations) // _ROUND)))
        else:
            yield tuple(part * slowdown for part in stored)


def _estimate_slowdown(server: Server, calls: Calls, chosen: NDArray[np.bool_]) -> float:
    """How many times as long the chosen calls took as stored samples of their sizes."""
    stored = np.array([_compute_mean(rounds) for rounds in server.rounds])
    expected = float(stored[calls.size[chosen]].sum())
    return float(calls.duration[chosen].sum()) / expected if expected else 1.0
