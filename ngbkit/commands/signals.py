"""The signals that end a command: it stops in order, and their echoes do not disturb that."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ngbkit.runs.progress_display import ECHO_S

# An ignored signal, as under nohup, stays ignored, and a handler of another program stays its own.
_DEFAULTS: Mapping[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGXCPU: signal.SIG_DFL,
}


@dataclass(slots=True)
class StopHandler:
    """Raises KeyboardInterrupt at the first signal, and again at a later Ctrl-C; a later SIGTERM ends the process."""

    number: int | None = None  # of the first signal
    received_s: float = 0.0

    def __call__(self, number: int, _frame: object) -> None:
        if self.number is None:
            self.number, self.received_s = number, time.monotonic()
            raise KeyboardInterrupt
        if number in (signal.SIGHUP, signal.SIGXCPU) or time.monotonic() - self.received_s < ECHO_S:
            return
        if number == signal.SIGTERM:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        raise KeyboardInterrupt


@contextmanager
def stop_in_order(signals: Collection[signal.Signals] = tuple(_DEFAULTS)) -> Iterator[StopHandler]:
    """Raise KeyboardInterrupt within the block at any of these `signals` as at Ctrl-C, and ignore their echoes."""
    handler = StopHandler()
    is_main = threading.current_thread() is threading.main_thread()
    numbers = [number for number in signals if is_main and signal.getsignal(number) == _DEFAULTS[number]]
    for number in numbers:
        signal.signal(number, handler)
    try:
        yield handler
    finally:
        for number in numbers:
            signal.signal(number, _DEFAULTS[number])


@contextmanager
def ignore_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C while the results of a run that it has stopped already are saved and displayed."""
    if threading.current_thread() is not threading.main_thread():  # only that one is interrupted
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
