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
    run: Callable[[], Any], samples: int, *, block: int = 1, settle: int = 0, clock: Clock = time.perf_counter_ns
) -> list[float]:
    """Time `samples` blocks of `block` calls of `run` each, after `settle` calls that are not timed.

    Returns
    -------
    list of float
        Nanoseconds a call, one a sample: where a block has several calls, their mean.
    """
    durations = []
    with collector_off():
        for _ in repeat(None, settle):
            run()
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
