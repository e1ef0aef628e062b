"""A forked process for work that may crash or hang: it is killed when its time is up."""

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

_CHUNK_BYTES = 1 << 16
_PR_SET_PDEATHSIG = 1


class ProcessEnded(Exception):
    """The process ended or was killed before it sent its message; the text says how."""


@dataclass(slots=True)
class ForkedProcess:
    """A process forked to run `work` with its end of a channel; it sends the return value last. End it with `close`."""

    work: Callable[[Channel], Any]
    channel: Channel = field(init=False)
    pid: int = field(init=False)

    def __post_init__(self) -> None:
        parent = os.getpid()
        parent_socket, child_socket = socket.socketpair()
        with warnings.catch_warnings():
            # Python 3.12 warns of threads: those of XGBoost's pool hold no lock unless it trains.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            _run_child(self.work, parent, parent_socket, child_socket)
        child_socket.close()
        self.channel = Channel(parent_socket)

    def receive(self, deadline: float) -> Any:
        """Receive the next message, or kill the process at the deadline (monotonic clock) and raise `ProcessEnded`."""
        try:
            return self.channel.receive(deadline)
        except TimeoutError:
            os.kill(self.pid, signal.SIGKILL)
            self._reap()
            raise ProcessEnded("timed out and was killed") from None
        except EOFError:
            raise ProcessEnded(_describe_exit(self._reap())) from None

    def send(self, message: Any) -> None:
        """Send a message, unless the process has ended."""
        with suppress(EOFError):
            self.channel.send(message)

    def close(self) -> None:
        """Kill the process unless it has ended, and close the channel."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self._reap()
        self.channel.close()

    def _reap(self) -> int:
        if not self.pid:
            return 0
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)


@dataclass(slots=True)
class Channel:
    """One end of a connection between two processes, with one line of JSON per message."""

    socket: socket.socket
    _buffer: bytes = b""

    def send(self, message: Any) -> None:
        """Send a message; raise EOFError if the other end is closed."""
        try:
            self.socket.sendall(json.dumps(message).encode() + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            raise EOFError from None

    def receive(self, deadline: float | None = None) -> Any:
        """Receive a message; raise EOFError if the other end is closed, TimeoutError at the monotonic deadline."""
        while b"\n" not in self._buffer:
            if deadline is not None:
                ready = select.select([self.socket], [], [], max(0.0, deadline - time.monotonic()))[0]
                if not ready:
                    raise TimeoutError
            try:
                chunk = self.socket.recv(_CHUNK_BYTES)
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                raise EOFError
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def close(self) -> None:
        """Close this end."""
        self.socket.close()


def _run_child(
    work: Callable[[Channel], Any], parent: int, parent_socket: socket.socket, child_socket: socket.socket
) -> None:
    """Do the work in the forked process, send its result or error, and never return."""
    try:
        _die_with_parent(parent)
        parent_socket.close()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        channel = Channel(child_socket)
        try:
            message = work(channel)
        except Exception as error:  # noqa: BLE001  any exception is reported to the parent
            message = {"error": f"{type(error).__name__}: {error}"}
        channel.send(message)
        os._exit(0)
    finally:
        os._exit(1)  # never return into the code of the parent


def _die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, however it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _describe_exit(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
