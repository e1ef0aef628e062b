"""The process that sends requests at scheduled times, whether or not earlier ones are answered (an open loop).

Run as ``python -m ngbkit.device.serving.generator PIPE RATE SECONDS SEED``. A request is the time for which it was
scheduled, so that a late generator shortens no latency. At the end it prints, as JSON, how late it was and what CPU
time it used.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
import time
from collections.abc import Callable, Sequence

from ngbkit.device.process_lifetime import end_with_parent
from ngbkit.device.serving.schedule import draw_schedule

REQUEST = struct.Struct("!d")
"""A request on the pipe: its time, of the clock that all processes share."""

# The first request is due so long after both ends of the pipe are open.
_LEAD_S = 0.1
# Linux wakes a sleeper up to 50 µs late, to wake several at once, unless a process asks it not to.
_PR_SET_TIMERSLACK, _SLACK_NS = 29, 1


def send(
    schedule: Sequence[float],
    write: Callable[[bytes], object],
    *,
    start: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[float]:
    """Send each request at its time after `start`; return how late each was sent, in seconds."""
    lags = []
    for offset in schedule:
        due = start + offset
        while (left := due - clock()) > 0:
            sleep(left)
        write(REQUEST.pack(due))
        lags.append(max(0.0, clock() - due))
    return lags


def main() -> None:
    """Open the pipe, which waits for its reader, and send the schedule of the command line."""
    end_with_parent()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_TIMERSLACK, _SLACK_NS, 0, 0, 0)
    path, rate, seconds, seed = sys.argv[1:]
    schedule = draw_schedule(float(rate), float(seconds), seed)
    pipe = os.open(path, os.O_WRONLY)
    used = time.process_time()
    lags = sorted(send(schedule, lambda request: os.write(pipe, request), start=time.monotonic() + _LEAD_S))
    used = time.process_time() - used
    os.close(pipe)
    late = lags[min(len(lags) - 1, int(0.99 * len(lags)))]
    sys.stdout.write(json.dumps({"lag_s": late, "largest_lag_s": lags[-1], "cpu_s": used}))


if __name__ == "__main__":
    main()
