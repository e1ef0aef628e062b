"""Timed calls: samples of one call, or of a block of short ones, without garbage collection."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from statistics import median
from typing import Any

Clock = Callable[[], int]

# Shorter calls are timed in blocks of about this duration, so that the timer (some 50 ns a reading) costs 0.001 % of a
# sample, and so that a sample averages over the scheduler's effect on a single short call.
SAMPLE_S = 0.005
# Of the clock, of which the median is the time of one.
_READINGS = 51


def sample(
    run: Callable[[], Any],
    samples: int,
    *,
    block: int = 1,
    settle: int = 0,
    clock: Clock = time.perf_counter_ns,
    measure: Callable[[int], float] | None = None,
    prepare: Callable[[], Any] | None = None,
    vary: Callable[[], bool | None] | None = None,
    inspect: Callable[[Any], None] | None = None,
) -> list[float]:
    """Time `samples` blocks of `block` calls each, after `settle` untimed calls of `run`; in nanoseconds a call.

    `run` returns when its outputs are ready. `measure` makes that many calls and returns seconds a call by another
    clock than the host's `clock`, such as the CUDA events of `ngbkit.hardware.accelerators.events`. `prepare` runs
    untimed before every timed call; the calls of a block are then timed one by one, since each undoes the preparation
    (a cold cache). So they are with `vary`, which changes the inputs before every call, those that settle included;
    where it returns True, one more call comes first, untimed, and `inspect` gets its outputs. `measure` times the calls
    of a block in a row all the same, since each follows the one before without a wait: their inputs change from block
    to block. A sample of several calls is their mean.
    """
    with disable_collector():
        for _ in repeat(None, settle):
            if vary is not None:
                vary()
            run()
        if measure is not None:
            return [_measure(measure, block, prepare, vary) * 1e9 for _ in repeat(None, samples)]
        if prepare is None and vary is None:
            return _sample_by_host(run, samples, block, clock)
        # A call that is timed by itself includes a reading of the clock.
        reading_ns = median(-clock() + clock() for _ in repeat(None, _READINGS))
        durations = [_sample_singly(run, block, clock, prepare, vary, inspect) for _ in repeat(None, samples)]
        return [max(0.0, duration - reading_ns) for duration in durations]


def _sample_by_host(run: Callable[[], Any], samples: int, block: int, clock: Clock) -> list[float]:
    durations = []
    for _ in repeat(None, samples):
        start = clock()
        for _ in repeat(None, block):
            run()
        durations.append((clock() - start) / block)
    return durations


def _sample_singly(
    run: Callable[[], Any],
    block: int,
    clock: Clock,
    prepare: Callable[[], Any] | None,
    vary: Callable[[], bool | None] | None,
    inspect: Callable[[Any], None] | None,
) -> float:
    total = 0
    for _ in repeat(None, block):
        if vary is not None and vary() and inspect is not None:
            inspect(run())
            vary()
        if prepare is not None:
            prepare()
        start = clock()
        run()
        total += clock() - start
    return total / block


def _measure(
    measure_s: Callable[[int], float],
    block: int,
    prepare: Callable[[], Any] | None,
    vary: Callable[[], bool | None] | None,
) -> float:
    if prepare is None:
        if vary is not None:
            vary()
        return measure_s(block)
    total_s = 0.0
    for _ in repeat(None, block):
        if vary is not None:
            vary()
        prepare()
        total_s += measure_s(1)
    return total_s / block


def choose_block_size(call_s: float, sample_s: float = SAMPLE_S) -> int:
    """Choose the calls of a sample by the duration of a conclusive call."""
    return max(1, math.ceil(sample_s / call_s)) if call_s > 0 else 1


@contextmanager
def disable_collector() -> Iterator[None]:
    """Disable the garbage collector within the block."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
