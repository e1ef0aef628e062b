"""Timed calls: samples of one call, or of a block of short ones, without garbage collection."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import Any

Clock = Callable[[], int]

# Shorter calls are timed in blocks of about this duration, so that the timer (some 50 ns a reading) costs 0.001 % of a
# sample, and so that a sample averages over the scheduler's effect on a single short call.
SAMPLE_S = 0.005


def sample(
    run: Callable[[], Any],
    samples: int,
    *,
    block: int = 1,
    settle: int = 0,
    clock: Clock = time.perf_counter_ns,
    measure: Callable[[int], float] | None = None,
    prepare: Callable[[], Any] | None = None,
) -> list[float]:
    """Time `samples` blocks of `block` calls each, after `settle` untimed calls of `run`; in nanoseconds a call.

    `run` returns when its outputs are ready. `measure` makes that many calls and returns seconds a call by another
    clock than the host's `clock`, such as the CUDA events of `ngbkit.hardware.accelerators.events`. `prepare` runs
    untimed before every timed call; the calls of a block are then timed one by one, since each undoes the preparation
    (a cold cache). A sample of several calls is their mean.
    """
    with disable_collector():
        for _ in repeat(None, settle):
            run()
        if measure is None and prepare is None:
            return _sample_by_host(run, samples, block, clock)
        measure_s = _build_host_timer(run, clock) if measure is None else measure
        if prepare is None:
            return [measure_s(block) * 1e9 for _ in repeat(None, samples)]
        return [_measure_singly(measure_s, block, prepare) * 1e9 for _ in repeat(None, samples)]


def _sample_by_host(run: Callable[[], Any], samples: int, block: int, clock: Clock) -> list[float]:
    durations = []
    if block == 1:
        for _ in repeat(None, samples):
            start = clock()
            run()
            durations.append(float(clock() - start))
        return durations
    for _ in repeat(None, samples):
        start = clock()
        for _ in repeat(None, block):
            run()
        durations.append((clock() - start) / block)
    return durations


def _build_host_timer(run: Callable[[], Any], clock: Clock) -> Callable[[int], float]:
    return lambda calls: _sample_by_host(run, 1, calls, clock)[0] * 1e-9


def _measure_singly(measure_s: Callable[[int], float], block: int, prepare: Callable[[], Any]) -> float:
    total_s = 0.0
    for _ in repeat(None, block):
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
