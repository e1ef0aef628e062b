"""The server of a load test: it takes requests from a pipe, forms batches, and calls the network."""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ngbkit.device.serving.generator import REQUEST
from ngbkit.device.timing.sampling import disable_collector

_CHUNK_BYTES = 1 << 16


class Source(Protocol):
    """Where requests come from."""

    @property
    def closed(self) -> bool:
        """Whether no further request will come."""

    def receive(self, timeout_s: float | None) -> list[float]:
        """The scheduled times of the requests that have come; it waits for the first, at most so long, or for ever."""


@dataclass(slots=True)
class Pipe:
    """Requests of a pipe, of which it is the reader."""

    descriptor: int
    closed: bool = False
    _rest: bytes = b""

    def receive(self, timeout_s: float | None) -> list[float]:
        if self.closed or not select.select([self.descriptor], [], [], timeout_s)[0]:
            return []
        data = os.read(self.descriptor, _CHUNK_BYTES)
        self.closed = not data
        data = self._rest + data
        end = len(data) - len(data) % REQUEST.size
        self._rest = data[end:]
        return [due for (due,) in REQUEST.iter_unpack(data[:end])]


@dataclass(slots=True, kw_only=True)
class Served:
    """What a server has done: by request, in their order, the seconds from its scheduled time to its completion."""

    latency_s: list[float] = field(default_factory=list)
    # The requests of each call.
    batches: list[int] = field(default_factory=list)
    busy_s: float = 0.0


def serve(
    source: Source,
    calls: Mapping[int, Callable[[], Any]],
    *,
    max_delay_s: float = 0.0,
    clock: Callable[[], float] = time.monotonic,
) -> Served:
    """Serve requests until the source closes and none waits; `calls` are by batch size, each for a whole batch.

    A free server takes the requests that wait, at most as many as the largest size, once that many wait or the first
    has waited `max_delay_s`, and runs them at the smallest size that holds them.
    """
    sizes = sorted(calls)
    largest = sizes[-1]
    waiting: deque[float] = deque()
    served = Served()
    with disable_collector():
        while waiting or not source.closed:
            waiting.extend(source.receive(0.0 if waiting else None))
            if not waiting:
                continue
            left = waiting[0] + max_delay_s - clock()
            if len(waiting) < largest and left > 0 and not source.closed:
                waiting.extend(source.receive(left))
                continue
            batch = [waiting.popleft() for _ in range(min(len(waiting), largest))]
            size = next(size for size in sizes if size >= len(batch))
            start = clock()
            calls[size]()
            end = clock()
            served.latency_s += [end - due for due in batch]
            served.batches.append(len(batch))
            served.busy_s += end - start
    return served
