"""Work that may crash or never end, done in forked processes that are killed when their time is up."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

_PIECE = 1 << 16
_PR_SET_PDEATHSIG = 1


class Ended(Exception):
    """The process ended, or was ended, before it had said what it was to say. The message says how."""


@dataclass(slots=True)
class Forked:
    """A process that was forked for one piece of work. End it with `close`.

    Parameters
    ----------
    work
        What it does. It is given the process's end of the line, and its return value is what the process says last.
    """

    work: Callable[[Line], Any]
    line: Line = field(init=False)
    pid: int = field(init=False)

    def __post_init__(self) -> None:
        parent = os.getpid()
        ours, theirs = socket.socketpair()
        with warnings.catch_warnings():
            # Python 3.12 warns of threads: those of XGBoost's pool hold no lock while nobody trains.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            _become(self.work, parent, ours, theirs)
        theirs.close()
        self.line = Line(ours)

    def hear(self, until: float) -> Any:
        """The next thing that the process says, as JSON.

        Parameters
        ----------
        until
            When to give it up, on the monotonic clock.

        Raises
        ------
        Ended
            It crashed, or took too long and was killed.
        """
        try:
            return self.line.hear(until)
        except TimeoutError:
            os.kill(self.pid, signal.SIGKILL)
            self._reap()
            raise Ended("it took too long and was killed") from None
        except EOFError:
            raise Ended(_how(self._reap())) from None

    def tell(self, words: Any) -> None:
        """Say something to the process; one that has ended does not hear it."""
        with suppress(EOFError):
            self.line.tell(words)

    def close(self) -> None:
        """Kill the process if it has not ended."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self._reap()
        self.line.close()

    def _reap(self) -> int:
        if not self.pid:
            return 0
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)


@dataclass(slots=True)
class Line:
    """One end of what connects two processes: each thing said is a line of JSON."""

    socket: socket.socket
    _heard: bytes = b""

    def tell(self, words: Any) -> None:
        """Say something.

        Raises
        ------
        EOFError
            The other side is gone.
        """
        try:
            self.socket.sendall(json.dumps(words).encode() + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            raise EOFError from None

    def hear(self, until: float | None = None) -> Any:
        """What is said next.

        Raises
        ------
        EOFError
            The other side is gone.
        TimeoutError
            Nothing came until then, on the monotonic clock.
        """
        while b"\n" not in self._heard:
            if until is not None:
                ready = select.select([self.socket], [], [], max(0.0, until - time.monotonic()))[0]
                if not ready:
                    raise TimeoutError
            try:
                piece = self.socket.recv(_PIECE)
            except ConnectionResetError:
                piece = b""
            if not piece:
                raise EOFError
            self._heard += piece
        line, _, self._heard = self._heard.partition(b"\n")
        return json.loads(line)

    def close(self) -> None:
        """Hang up."""
        self.socket.close()


def _become(work: Callable[[Line], Any], parent: int, ours: socket.socket, theirs: socket.socket) -> None:
    """Do the work in this new process, and never return."""
    try:
        _end_with(parent)
        ours.close()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        line = Line(theirs)
        try:
            words = work(line)
        except Exception as error:  # noqa: BLE001  whatever it is, whoever wanted the work is told
            words = {"error": f"{type(error).__name__}: {error}"}
        line.tell(words)
        os._exit(0)
    finally:
        os._exit(1)  # nothing may return into what was forked


def _end_with(parent: int) -> None:
    """Have the kernel end this process when the one that forked it ends, by whatever way."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _how(code: int) -> str:
    if code < 0:
        return f"it was ended by {signal.Signals(-code).name}"
    return f"it ended with {code}"
