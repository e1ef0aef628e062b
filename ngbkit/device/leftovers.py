"""Work that a call leaves to Python's other threads: what it returned then does not say how long it takes."""

from __future__ import annotations

import threading
import time

# The time in which threads that a call left behind begin, or end, and that in which a call's own may go on.
_PAUSE_S, _LONGEST_S = 0.02, 2.0
# Threads that compute less in a pause are idle; twice, since a busy machine lets a thread wait for one.
_IDLE_S = 1e-3
# The share of a call that other threads compute after it, and the least time of it.
_SHARE, _LEAST_S = 0.2, 2e-4


class ThreadWatch:
    """Python's other threads since a call began; those of a runtime, which may spin for a while, are none of them."""

    def __init__(self) -> None:
        self._before = _list_seconds().keys()
        self._start = time.perf_counter()

    def find_work(self) -> bool:
        """Return whether they compute now that the call has returned; wait until they are idle."""
        call_s = time.perf_counter() - self._start
        seconds, windows = _list_seconds(), list[float]()
        started = seconds.keys() - self._before
        while len(windows) < 2 or (max(windows[-2:]) > _IDLE_S and len(windows) * _PAUSE_S < _LONGEST_S):
            time.sleep(_PAUSE_S)
            later = _list_seconds()
            windows.append(sum(used - seconds.get(thread, 0.0) for thread, used in later.items()))
            seconds = later
        # Other threads that are always busy are no part of the call, nor is what others compute in each pause.
        usual_s = min(windows[1:])
        is_endless = max(windows[-2:]) > _IDLE_S
        work_s = max(windows) - usual_s if is_endless else sum(windows) - len(windows) * usual_s
        return bool(started - seconds.keys()) or work_s > max(_LEAST_S, _SHARE * call_s)


def _list_seconds() -> dict[int, float]:
    """List the processor time of each of Python's threads but this one, by its number."""
    seconds = {}
    for thread in threading.enumerate():
        if thread.native_id is not None and thread is not threading.current_thread():
            try:  # Linux's number of the clock of a thread, which may end meanwhile
                seconds[thread.native_id] = time.clock_gettime((~thread.native_id << 3) | 6)
            except OSError:
                continue
    return seconds
