"""A wish to stop, seen where it is safe to stop."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupt:
    """Turns SIGINT into a readable file descriptor for as long as the block lasts.

    Python's own way, an exception at any line, could come between a child's answer and its record.
    """

    def __init__(self) -> None:
        self.descriptor, self._write = os.pipe()
        self._before: Any = None

    def set(self) -> None:
        """Ask for a stop; from then on the descriptor stays readable."""
        os.write(self._write, b"x")

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        os.close(self.descriptor)
        os.close(self._write)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.set()
