"""How long a test waits for others: limits for a machine with nothing else to do, times the pace of this one now.

A limit only says when to give up: a test that passes never waits for it. So that a busy or slow machine does not fail a
test, every limit is multiplied by `pace`; where pytest-timeout ends a hang anyway, there is no other limit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cache
from typing import Any

#: Seconds that a test may take, and that it waits for another process, on an idle machine like the one below.
TEST_S, WAIT_S = 600.0, 60.0
# What `_work` takes on the two-core machine on which the limits were chosen.
_WORK_S = 0.02


def pace() -> float:
    """How many times longer than on that machine something may take here and now; at least 1."""
    with open("/proc/loadavg") as file:
        average, _, _, tasks, _ = file.read().split()
    waiting = max(float(average), float(tasks.partition("/")[0]))
    return max(1.0, waiting / len(os.sched_getaffinity(0))) * _slowness()


def limit_s(seconds: float = WAIT_S) -> float:
    """A limit for this machine as it is now, from that for an idle one; for what takes its limit beforehand."""
    return seconds * pace()


def wait_until(true: Callable[[], Any], seconds: float = WAIT_S) -> None:
    """Wait for something that another process or thread brings about; it fails the test where it does not come."""
    began, longest = time.monotonic(), seconds
    while not true():
        longest = max(longest, limit_s(seconds))
        assert time.monotonic() - began < longest, f"it did not happen in {longest:.0f} s"
        time.sleep(0.02)


@cache
def _slowness() -> float:
    return max(1.0, min(_work() for _ in range(3)) / _WORK_S)


def _work() -> float:
    """Seconds that a fixed piece of work takes."""
    began = time.perf_counter()
    sum(number * number for number in range(300_000))
    return time.perf_counter() - began
