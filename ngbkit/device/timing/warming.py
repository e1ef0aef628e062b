"""Warm-up: call until calls measurably stop getting faster."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from ngbkit.device.timing.sampling import Clock, disable_collector

# A window has at least this many calls and this duration, and at most LONGEST_S even with fewer calls.
WINDOW_CALLS = 3
WINDOW_S = 0.1
LONGEST_S = 2.0
# Calls that are faster by less than this count as equally fast.
MARGIN = 0.02
# A network that is not steady after this time will not become steady.
MOST_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """Result of a warm-up."""

    calls: int
    spent_s: float
    # The duration of a conclusive call: the median of the last window.
    call_s: float
    # Whether calls had stopped getting faster at the end.
    steady: bool


def warm_up(
    run: Callable[[], Any],
    *,
    most_s: float = MOST_S,
    clock: Clock = time.perf_counter_ns,
    vary: Callable[[], Any] = lambda: None,
) -> WarmUp:
    """Call `run` in windows until one is no longer clearly faster than the window before it; `vary` before each call.

    Clearly faster means that the median of the window is below every call of the window before, and by more than 2 % of
    that window's median: noise alone makes at most one window of three calls in five appear so, and costs one more
    window. The very first call, which differs from all others, must be complete; the warm-up gives up after `most_s`.
    """
    start = clock()
    calls, previous = 0, None
    while True:
        window = _time_window(run, clock, vary)
        calls += len(window)
        spent_s = (clock() - start) * 1e-9
        steady = previous is not None and not _is_faster(window, previous)
        # For a call longer than a whole window, the first call was the warm-up.
        if steady or len(window) == 1 or spent_s >= most_s:
            return WarmUp(calls=calls, spent_s=spent_s, call_s=median(window) * 1e-9, steady=steady or len(window) == 1)
        previous = window


def _time_window(run: Callable[[], Any], clock: Clock, vary: Callable[[], Any]) -> list[int]:
    durations: list[int] = []
    spent = 0
    with disable_collector():
        while (len(durations) < WINDOW_CALLS or spent < WINDOW_S * 1e9) and spent < LONGEST_S * 1e9:
            vary()
            start = clock()
            run()
            durations.append(clock() - start)
            spent += durations[-1]
    return durations


def _is_faster(window: list[int], previous: list[int]) -> bool:
    return median(window) < min(min(previous), (1 - MARGIN) * median(previous))
