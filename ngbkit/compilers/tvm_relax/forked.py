"""A forked process for work that may crash or hang: it is killed when its time is up."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import Any

_PR_SET_PDEATHSIG = 1


class ProcessEnded(Exception):
    """The process ended or was killed before it sent its message; the text says how."""


@dataclass(slots=True)
class ForkedProcess:
    """A process forked to run `work` with its end of a channel; it sends the return value last. End it with `close`."""

    work: Callable[[Connection], Any]
    channel: Connection = field(init=False)
    _process: ForkProcess = field(init=False)

    def __post_init__(self) -> None:
        context = multiprocessing.get_context("fork")
        self.channel, channel = context.Pipe()
        self._process = context.Process(target=_run_child, args=(self.work, os.getpid(), channel))
        with warnings.catch_warnings():
            # Python 3.12 warns of threads: those of XGBoost's pool hold no lock unless it trains.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process.start()
        channel.close()

    def receive(self, deadline: float) -> Any:
        """Receive the next message, or kill the process at the deadline (monotonic clock) and raise `ProcessEnded`."""
        if not self.channel.poll(max(0.0, deadline - time.monotonic())):
            self._process.kill()
            self._process.join()
            raise ProcessEnded("timed out and was killed")
        try:
            return self.channel.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            raise ProcessEnded(_describe_exit(self._process.exitcode or 0)) from None

    def send(self, message: Any) -> None:
        """Send a message, unless the process has ended."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.channel.send(message)

    def close(self) -> None:
        """Kill the process unless it has ended, and close the channel."""
        self._process.kill()
        self._process.join()
        self.channel.close()


def _run_child(work: Callable[[Connection], Any], parent: int, channel: Connection) -> None:
    """Do the work in the forked process, and send its result or error."""
    # The kernel kills this process when its parent ends, however it ends.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        message = work(channel)
    except Exception as error:  # noqa: BLE001  any exception is reported to the parent
        message = {"error": f"{type(error).__name__}: {error}"}
    channel.send(message)


def _describe_exit(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
