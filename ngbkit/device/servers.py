"""The engine's side of its fork servers: start them once, ask them for children, see how a child ended."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ngbkit.device.channel import Channel, ChannelClosedError, Message
from ngbkit.errors import DeviceError
from ngbkit.hardware.resources import out_of_memory_kills

_LOG_TAIL = 4000
_START_S = 120.0


class ChildEndedError(DeviceError):
    """A child ended before it answered.

    Attributes
    ----------
    code
        Its exit code; the negated number of the signal that ended it; None where that is not known.
    out_of_memory
        Whether the kernel killed a process for want of memory meanwhile.
    """

    def __init__(self, code: int | None, out_of_memory: bool, log: str) -> None:
        self.code, self.out_of_memory, self.log = code, out_of_memory, log
        super().__init__(_how_it_ended(code))


class ChildTimeoutError(DeviceError):
    """A child did not answer in time and was killed."""


def _unheard(progress: Message) -> None:
    del progress


@dataclass(slots=True)
class Child:
    """A live child process, which answers one message at a time."""

    pid: int
    server: ForkServer
    channel: Channel
    log: Path
    kills_before: int | None
    ended: bool = False

    def ask(
        self,
        message: Message,
        timeout_s: float,
        interrupt: int | None = None,
        told: Callable[[Message], None] = _unheard,
    ) -> Message:
        """Send a message and wait for the answer.

        Parameters
        ----------
        message
            What is asked.
        timeout_s
            How long the child may be silent, in seconds.
        interrupt
            A file descriptor that becomes readable when nobody waits any longer.
        told
            Takes what the child tells of its progress before it answers; each time it may be silent as long again.

        Raises
        ------
        ChildEndedError, ChildTimeoutError
            The child is gone; in the second case because it was killed for not answering in `timeout_s` seconds.
        InterruptedError
            `interrupt` became readable. The child still works on the message.
        """
        try:
            self.channel.send(message)
            while True:
                reply = self.channel.receive(timeout_s, interrupt)
                if "progress" not in reply:
                    return reply
                told(reply["progress"])
        except ChannelClosedError:
            raise self._ended_error() from None
        except TimeoutError:
            self.end()
            raise ChildTimeoutError(f"no answer to {message['op']!r} within {timeout_s:g} s") from None

    def end(self) -> Mapping[str, Any]:
        """Kill the child with all that it started, and say how it ended."""
        if self.ended:
            return {"exit": None, "peak_memory_bytes": None}
        self.ended = True
        self.channel.close()
        for kill in (os.killpg, os.kill):
            try:
                kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return self.server.reap(self.pid)

    def tail(self) -> str:
        """The last lines that it printed."""
        try:
            return self.log.read_text(errors="replace")[-_LOG_TAIL:].strip()
        except OSError:
            return ""

    def _ended_error(self) -> ChildEndedError:
        # Asked first: `end` would replace the way in which a child that still shuts down ends by our own SIGKILL.
        self.ended = True
        self.channel.close()
        code = self.server.reap(self.pid)["exit"]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        now = out_of_memory_kills()
        starved = (
            code == -signal.SIGKILL and now is not None and self.kills_before is not None and now > self.kills_before
        )
        return ChildEndedError(code, starved, self.tail())


@dataclass(slots=True)
class ForkServer:
    """A process with `preload` imported, from which children are forked in milliseconds."""

    preload: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path
    started_at: float = field(default_factory=time.monotonic)
    _process: subprocess.Popen[bytes] = field(init=False)
    _control: socket.socket = field(init=False)
    _ready: bool = False
    _children: int = 0

    def __post_init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ngbkit.device.forkserver", str(theirs.fileno()), ",".join(self.preload)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(self.environment),
                start_new_session=True,
            )

    @property
    def _log(self) -> Path:
        return self.folder / "server.log"

    def fork(self) -> Child:
        """A new child of this server.

        Raises
        ------
        DeviceError
            The server does not start, or has ended.
        """
        self.wait_until_ready()
        ours, theirs = socket.socketpair()
        self._children += 1
        log = self.folder / f"child-{self._children}.log"
        kills = out_of_memory_kills()
        with theirs:
            socket.send_fds(self._control, [json.dumps({"op": "fork", "log": str(log)}).encode()], [theirs.fileno()])
        pid = self._reply()["pid"]
        return Child(pid=pid, server=self, channel=Channel(ours), log=log, kills_before=kills)

    def reap(self, pid: int) -> Mapping[str, Any]:
        """Wait for a child that has ended, and say how: its exit code and its peak memory."""
        try:
            self._control.send(json.dumps({"op": "reap", "pid": pid}).encode())
            return self._reply()
        except (DeviceError, OSError):
            return {"exit": None, "peak_memory_bytes": None}

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """End the server and with it every child."""
        self._control.close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def wait_until_ready(self) -> None:
        """Until it has its imports.

        Raises
        ------
        DeviceError
            It does not come up.
        """
        if not self._ready:
            self._control.settimeout(_START_S)
            self._reply()
            self._ready = True

    def _reply(self) -> Message:
        try:
            data = self._control.recv(1 << 16)
        except OSError as error:
            data = b""
            reason = f" ({error})"
        else:
            reason = ""
        if not data:
            tail = self._log.read_text(errors="replace")[-_LOG_TAIL:].strip()
            name = ", ".join(self.preload) or "plain Python"
            raise DeviceError(f"the fork server of {name} ended{reason}: {tail or 'it printed nothing'}")
        message: Message = json.loads(data)
        return message


@dataclass(slots=True)
class Servers:
    """The fork servers of one engine, started when they are first needed and warm from then on.

    Parameters
    ----------
    environment
        Of the servers and so of their children.
    folder
        For logs and whatever children put into a temporary folder; removed at the end.
    """

    environment: Mapping[str, str]
    folder: Path
    _servers: dict[tuple[str, ...], ForkServer] = field(default_factory=dict)

    def get(self, preload: Iterable[str]) -> ForkServer:
        """The server that has these modules imported; its imports go on while the caller does other things."""
        key = tuple(preload)
        server = self._servers.get(key)
        if server is None or not server.alive:
            folder = self.folder / f"server-{time.monotonic_ns()}"
            folder.mkdir()
            server = self._servers[key] = ForkServer(preload=key, environment=self.environment, folder=folder)
        return server

    def close(self) -> None:
        for server in self._servers.values():
            server.close()
        self._servers.clear()
        shutil.rmtree(self.folder, ignore_errors=True)


def _how_it_ended(code: int | None) -> str:
    if code is None:
        return "the child process ended"
    if code < 0:
        return f"the child process was ended by {signal.Signals(-code).name}"
    return f"the child process ended with exit code {code}"
