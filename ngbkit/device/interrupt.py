"""A request to stop, noticed only at safe points."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupt:
    """Turns SIGINT into a readable descriptor, since an exception at any line could part an answer from its record."""

    def __init__(self) -> None:
        self.descriptor, self._write = os.pipe()
        self._previous_handler: Any = None

    def set(self) -> None:
        """Request a stop; from then on the descriptor stays readable."""
        os.write(self._write, b"x")

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._previous_handler = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._previous_handler is not None:
            signal.signal(signal.SIGINT, self._previous_handler)
        os.close(self.descriptor)
        os.close(self._write)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.set()
