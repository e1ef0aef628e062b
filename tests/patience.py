"""Time limits of tests: limits for an idle reference machine, times the current slowness of this machine.

A limit only ends a test that hangs; a test that passes never waits for it. Every limit is multiplied by `measure_pace`,
so that no test fails because its machine is busy or slow. Where pytest-timeout ends a hang anyway, there is no limit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cache
from typing import Any

#: Seconds that a test may take, and that it waits for another process, on the idle reference machine.
TEST_S, WAIT_S = 600.0, 60.0
# Seconds that `_time_work` takes on the reference machine, which has two cores.
_WORK_S = 0.02


def measure_pace() -> float:
    """Measure how many times slower than the reference machine this machine is now; at least 1."""
    with open("/proc/loadavg") as file:
        average, _, _, tasks, _ = file.read().split()
    waiting = max(float(average), float(tasks.partition("/")[0]))
    return max(1.0, waiting / len(os.sched_getaffinity(0))) * _measure_slowness()


def limit_s(seconds: float = WAIT_S) -> float:
    """Scale a limit of the reference machine to this machine, once; `wait_until` scales it again and again."""
    return seconds * measure_pace()


def wait_until(condition: Callable[[], Any], seconds: float = WAIT_S) -> None:
    """Wait until another process or thread makes a condition true; fail the test at the limit."""
    start, limit = time.monotonic(), seconds
    while not condition():
        limit = max(limit, limit_s(seconds))
        assert time.monotonic() - start < limit, f"the condition is still false after {limit:.0f} s"
        time.sleep(0.02)


@cache
def _measure_slowness() -> float:
    return max(1.0, min(_time_work() for _ in range(3)) / _WORK_S)


def _time_work() -> float:
    """Time a fixed piece of work, in seconds."""
    start = time.perf_counter()
    sum(number * number for number in range(300_000))
    return time.perf_counter() - start
