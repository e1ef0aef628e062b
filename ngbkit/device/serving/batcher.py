"""The server of a load test: it forms batches of the requests that wait, and calls the network."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ngbkit.device.timing.sampling import disable_collector


@dataclass(slots=True)
class Requests:
    """The requests that wait: the load generator's thread adds their ids, and the server takes them."""

    _waiting: deque[tuple[int, float]] = field(default_factory=deque)
    _is_closed: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def add(self, ids: list[int]) -> None:
        with self._changed:
            self._waiting.extend((number, time.monotonic()) for number in ids)
            self._changed.notify()

    def close(self) -> None:
        """Declare that no further request will come."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def take(self, sizes: list[int], max_delay_s: float) -> tuple[int, list[int]]:
        """Take the requests of the next call, and its batch size; no requests once these are closed and all were taken.

        `sizes` has the batch size by the number of requests that wait, its last entry being for more. The first request
        waits at most `max_delay_s` for that many.
        """
        most = len(sizes) - 1
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            if self._waiting and max_delay_s:
                left_s = self._waiting[0][1] + max_delay_s - time.monotonic()
                self._changed.wait_for(lambda: len(self._waiting) >= most or self._is_closed, max(0.0, left_s))
            size = sizes[min(len(self._waiting), most)]
            return size, [self._waiting.popleft()[0] for _ in range(min(size, len(self._waiting)))]


def choose_sizes(call_s: Mapping[int, float]) -> list[int]:
    """Choose, by the number of requests that wait, from 0 to the largest batch size, the size of the next call.

    `call_s` has the duration of a call by batch size. The size answers most requests a second; of equal ones it is the
    smallest. A larger batch that is mostly padding thus runs only where it is faster than smaller full ones.
    """
    sizes = sorted(call_s)
    return [
        max(sizes, key=lambda size: (min(count, size) / max(call_s[size], 1e-9), -size))
        for count in range(max(sizes) + 1)
    ]


@dataclass(slots=True)
class Served:
    """The work of a server: the seconds in calls, and their number."""

    busy_s: float = 0.0
    calls: int = 0


def serve(
    requests: Requests,
    calls: Mapping[int, Callable[[], Any]],
    call_s: Mapping[int, float],
    complete: Callable[[list[int]], object],
    max_delay_s: float = 0.0,
) -> Served:
    """Serve requests until they are closed and none waits; `calls` and their durations are by batch size.

    `complete` receives the ids of the requests of each call when it has ended.
    """
    sizes = choose_sizes({size: call_s[size] for size in calls})
    served = Served()
    with disable_collector():
        while True:
            size, batch = requests.take(sizes, max_delay_s)
            if not batch:
                return served
            start = time.perf_counter()
            calls[size]()
            complete(batch)
            served.busy_s += time.perf_counter() - start
            served.calls += 1
