"""Measurement of the lag between events of runs and their subscribers, and of the interval between two events."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ngbkit.runs import Run


class Pulse:
    """Calls a function whenever it is called itself, and records the longest pause."""

    def __init__(self, act: Callable[[Any], object]) -> None:
        self.longest_s, self._act, self._last = 0.0, act, 0.0

    def beat(self, run: Any) -> None:
        """Call the function once."""
        self._act(run)
        now = time.perf_counter()
        if self._last:
            self.longest_s = max(self.longest_s, now - self._last)
        # Nothing is displayed before the first record.
        self._last = now if run.progress.done else 0.0


class Listener:
    """The delays of events, in order of arrival, by kind."""

    def __init__(self) -> None:
        self._lags: dict[str, array[float]] = {}
        #: Records recovered from the device's journal after their event was lost.
        self.recovered = 0

    def record(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Record events whose subscribers have all been notified."""
        from scripted import find_send_time

        now = time.time()
        for event in events:
            sent = find_send_time(event)
            if sent == 0:
                self.recovered += 1
            elif sent is not None:
                self._lags.setdefault(event["kind"], array("d")).append(now - sent)

    def lags(self, kind: str | None = None) -> np.ndarray:
        """Seconds from the publication of an event to the notification of the last subscriber."""
        return np.concatenate([np.array(lags) for name, lags in self._lags.items() if kind in (None, name)])


@contextmanager
def listen() -> Iterator[Listener]:
    """Listen to all events of runs."""
    from ngbkit.runs import Run

    listener, original = Listener(), Run._on_events

    def on_events(run: Run, events: Sequence[Mapping[str, Any]]) -> None:
        original(run, events)
        listener.record(events)

    Run._on_events = on_events  # type: ignore[method-assign, assignment]
    try:
        yield listener
    finally:
        Run._on_events = original  # type: ignore[method-assign]
