"""Timed calls: warm-up, then samples, with the garbage collector held off."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Clock = Callable[[], int]


def sample(run: Callable[[], Any], calls: int, *, settle: int = 0, clock: Clock = time.perf_counter_ns) -> list[int]:
    """Time `calls` calls of `run`, one by one, after `settle` calls that are not timed.

    Returns
    -------
    list of int
        Nanoseconds, one a call.
    """
    durations = []
    with collector_off():
        for _ in range(settle):
            run()
        for _ in range(calls):
            before = clock()
            run()
            durations.append(clock() - before)
    return durations


def warm_up(
    run: Callable[[], Any], *, seconds: float, most: int, least: int = 1, clock: Clock = time.perf_counter_ns
) -> list[int]:
    """Call `run` until `seconds` have passed, at least `least` and at most `most` times.

    Returns
    -------
    list of int
        Nanoseconds, one a call: the last ones say how long a settled call takes.
    """
    durations: list[int] = []
    spent = 0.0
    while len(durations) < least or (spent < seconds * 1e9 and len(durations) < most):
        durations += sample(run, 1, clock=clock)
        spent += durations[-1]
    return durations


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
