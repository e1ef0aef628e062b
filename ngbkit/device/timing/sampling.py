"""Timed calls: samples of one call, or of a block of short ones, with the garbage collector held off."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import Any

Clock = Callable[[], int]

# Shorter calls are timed in blocks that last about this long, so that the timer (some 50 ns a reading) costs 0.001 % of
# a sample, and so that a sample spans what a scheduler does to a single short call.
SAMPLE_S = 0.005


def sample(
    run: Callable[[], Any],
    samples: int,
    *,
    block: int = 1,
    settle: int = 0,
    clock: Clock = time.perf_counter_ns,
    measure: Callable[[int], float] | None = None,
    before: Callable[[], Any] | None = None,
) -> list[float]:
    """Time `samples` blocks of `block` calls each, after `settle` calls of `run` that are not timed.

    Parameters
    ----------
    run
        One call; it returns when its outputs are ready.
    measure
        Makes that many calls and gives seconds a call, by another clock than the host's: CUDA events, which
        `ngbkit.hardware.accelerators.events` makes. Default: calls of `run`, by `clock`.
    before
        Called before every call that is timed, and not timed itself: the calls of a block are then timed one by one,
        for what it undoes (a cold cache) the next call does again.

    Returns
    -------
    list of float
        Nanoseconds a call, one a sample: where a block has several calls, their mean.
    """
    with collector_off():
        for _ in repeat(None, settle):
            run()
        if measure is None and before is None:
            return _by_host(run, samples, block, clock)
        timed = _timed_by(run, clock) if measure is None else measure
        if before is None:
            return [timed(block) * 1e9 for _ in repeat(None, samples)]
        return [_one_by_one(timed, block, before) * 1e9 for _ in repeat(None, samples)]


def _by_host(run: Callable[[], Any], samples: int, block: int, clock: Clock) -> list[float]:
    durations = []
    if block == 1:
        for _ in repeat(None, samples):
            before = clock()
            run()
            durations.append(float(clock() - before))
        return durations
    for _ in repeat(None, samples):
        before = clock()
        for _ in repeat(None, block):
            run()
        durations.append((clock() - before) / block)
    return durations


def _timed_by(run: Callable[[], Any], clock: Clock) -> Callable[[int], float]:
    return lambda calls: _by_host(run, 1, calls, clock)[0] * 1e-9


def _one_by_one(timed: Callable[[int], float], block: int, before: Callable[[], Any]) -> float:
    total = 0.0
    for _ in repeat(None, block):
        before()
        total += timed(1)
    return total / block


def block_size(call_s: float, sample_s: float = SAMPLE_S) -> int:
    """How many calls a sample takes in, by how long a settled call takes, in seconds."""
    return max(1, math.ceil(sample_s / call_s)) if call_s > 0 else 1


@contextmanager
def collector_off() -> Iterator[None]:
    """The garbage collector does not run within the block."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
