"""Warm-up: call until calls no longer get faster, which is seen and not assumed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from ngbkit.device.timing.sampling import Clock, collector_off

# A window is at least this many calls and this long, and at most LONGEST_S, whatever that leaves of its calls.
WINDOW_CALLS = 3
WINDOW_S = 0.1
LONGEST_S = 2.0
# Calls that are faster by less than this are taken to be as fast.
MARGIN = 0.02
# Who is not steady after so long does not become it.
MOST_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """What warming up came to.

    Parameters
    ----------
    calls
        How many there were.
    spent_s
        How long they took, in seconds.
    call_s
        How long a settled call takes, in seconds: the median of the last window.
    steady
        Whether calls had stopped getting faster when it ended.
    """

    calls: int
    spent_s: float
    call_s: float
    steady: bool


def warm_up(run: Callable[[], Any], *, most_s: float = MOST_S, clock: Clock = time.perf_counter_ns) -> WarmUp:
    """Call `run` in windows until one is no longer clearly faster than the window before it.

    Clearly faster means that the median of the window is below every call of the window before, and by more than 2 % of
    that one's median: noise alone makes at most one window of three calls in five look so, and costs another window.

    Parameters
    ----------
    run
        One call; its very first one, which is unlike all others, has been made already.
    most_s
        When to give up, in seconds.
    """
    began = clock()
    calls, previous = 0, None
    while True:
        window = _window(run, clock)
        calls += len(window)
        spent_s = (clock() - began) * 1e-9
        steady = previous is not None and not _is_faster(window, previous)
        # A call that is longer than a whole window had its warm-up in the first call.
        if steady or len(window) == 1 or spent_s >= most_s:
            return WarmUp(calls=calls, spent_s=spent_s, call_s=median(window) * 1e-9, steady=steady or len(window) == 1)
        previous = window


def _window(run: Callable[[], Any], clock: Clock) -> list[int]:
    durations: list[int] = []
    spent = 0
    with collector_off():
        while (len(durations) < WINDOW_CALLS or spent < WINDOW_S * 1e9) and spent < LONGEST_S * 1e9:
            before = clock()
            run()
            durations.append(clock() - before)
            spent += durations[-1]
    return durations


def _is_faster(window: list[int], previous: list[int]) -> bool:
    return median(window) < min(min(previous), (1 - MARGIN) * median(previous))
