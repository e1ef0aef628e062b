"""The engine's side of its fork servers: start them once, request children, and determine how a child ended."""

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

import psutil

from ngbkit import limits
from ngbkit.device.isolation.channel import Channel, ChannelClosedError, Message
from ngbkit.device.release_sources import link_sources
from ngbkit.device.releases import is_environment
from ngbkit.device.world import World
from ngbkit.errors import DeviceError
from ngbkit.hardware.resources import count_out_of_memory_kills
from ngbkit.user_text import parse_json
from ngbkit.workloads.content.manifests import read_states
from ngbkit.workloads.subprocesses import build_arguments

_LOG_TAIL = 4000
_START_S, _END_S, _POLL_S = 120.0, 2.0, 0.002
# Variables that add packages of this process's environment to those of another interpreter.
_PACKAGES = frozenset({"PYTHONPATH", "PYTHONHOME"})


class ServerEndedError(DeviceError):
    """A fork server ended, or did not start: `reason` in a line, its limit included, and the end of its output."""

    def __init__(self, reason: str, log: str) -> None:
        self.reason, self.log = ": ".join(filter(None, [reason, limits.describe(log)])), log
        super().__init__(f"{self.reason}: {log or 'it printed nothing'}")


class ChildEndedError(DeviceError):
    """A child ended before it answered."""

    def __init__(self, code: int | None, out_of_memory: bool, log: str) -> None:
        # Its exit code, the negated number of the signal that ended it, or None if unknown; and whether the kernel
        # killed a process for lack of memory meanwhile.
        self.code, self.out_of_memory, self.log = code, out_of_memory, log
        super().__init__(_describe_end(code))


class ChildTimeoutError(DeviceError):
    """A child did not answer in time and was killed."""


def _ignore_progress(progress: Message) -> None:
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
        report: Callable[[Message], None] = _ignore_progress,
    ) -> Message:
        """Send a message and wait for the answer: see `post` and `receive`."""
        self.post(message)
        return self.receive(message["op"], timeout_s, interrupt, report)

    def post(self, message: Message) -> None:
        """Send a message without waiting for the answer; ChildEndedError if the child has ended."""
        try:
            self.channel.send(message)
        except ChannelClosedError:
            raise self._build_ended_error() from None

    def receive(
        self,
        op: str,
        timeout_s: float,
        interrupt: int | None = None,
        report: Callable[[Message], None] = _ignore_progress,
    ) -> Message:
        """Wait for the answer to a message; `report` receives progress messages, which restart the timeout.

        ChildEndedError if the child ends; ChildTimeoutError after killing a child that is silent for `timeout_s`;
        InterruptedError, with the child still at work, if the file descriptor `interrupt` becomes readable.
        """
        try:
            while True:
                reply = self.channel.receive(timeout_s, interrupt)
                if "progress" not in reply:
                    return reply
                report(reply["progress"])
        except ChannelClosedError:
            raise self._build_ended_error() from None
        except TimeoutError:
            self.end()
            raise ChildTimeoutError(f"no answer to {op!r} within {timeout_s:g} s") from None

    def kill(self) -> None:
        """Kill the child and every process that it started, without waiting for their end."""
        if not self.ended:
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError):
                    kill(self.pid, signal.SIGKILL)

    def end(self) -> Mapping[str, Any]:
        """Kill the child and every process that it started; return its exit code and peak memory."""
        if self.ended:
            return {"exit": None, "peak_memory_bytes": None}
        self.channel.close()
        self.kill()
        self.ended = True
        return self.server.reap(self.pid)

    def read_log_tail(self) -> str:
        """Read the last lines of its output."""
        try:
            return self.log.read_text(errors="replace")[-_LOG_TAIL:].strip()
        except OSError:
            return ""

    def _build_ended_error(self) -> ChildEndedError:
        # The exit code first: `end` would replace that of a child that is still shutting down by our own SIGKILL.
        self.ended = True
        self.channel.close()
        code = self.server.reap(self.pid)["exit"]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        kills = count_out_of_memory_kills()
        has_killed = kills is not None and self.kills_before is not None and kills > self.kills_before
        return ChildEndedError(code, code == -signal.SIGKILL and has_killed, self.read_log_tail())


@dataclass(slots=True)
class ForkServer:
    """A process with the modules `preload` imported, which forks children in milliseconds.

    One with a `trunk` is forked from that server, which has imported the first of the modules, when it is needed.
    """

    preload: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path
    # The interpreter; empty for that of this process, whose packages another one must not import.
    python: str = ""
    # A folder with ngbkit, for an interpreter without it.
    sources: Path | None = None
    trunk: ForkServer | None = None
    _process: psutil.Process | None = None
    _control: socket.socket = field(init=False)
    # The server's end of it, until the server has it.
    _remote: socket.socket = field(init=False)
    _ready: bool = False
    _children: int = 0

    def __post_init__(self) -> None:
        self._control, self._remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if self.trunk is None:
            self._start()

    def _start(self) -> None:
        remote, modules = self._remote, ",".join(self.preload)
        arguments = build_arguments(
            "ngbkit.device.isolation.forkserver", str(remote.fileno()), modules, str(self._states)
        )
        command = [self.python or sys.executable, *arguments]
        foreign = _PACKAGES if self.python else frozenset[str]()
        environment = {name: value for name, value in self.environment.items() if name not in foreign}
        environment |= {"PYTHONPATH": str(self.sources)} if self.sources else {}
        try:
            with remote, open(self._log, "ab") as log:
                self._process = psutil.Popen(
                    command,
                    pass_fds=[remote.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    cwd=self.folder,  # where a child remains if the folder of its world was removed
                    start_new_session=True,
                )
        except OSError as error:
            self._control.close()
            raise ServerEndedError(f"the interpreter {command[0]} does not start", str(error)) from error

    @property
    def _log(self) -> Path:
        return self.folder / "server.log"

    @property
    def _states(self) -> Path:
        return self.folder / "imported.json"

    def is_outdated(self) -> bool:
        """Return whether a file that this server has imported is another one now."""
        try:
            before = parse_json(self._states.read_text())
        except (OSError, ValueError):
            return self._ready
        return bool(before != json.loads(json.dumps(dict(read_states(before)))))

    def fork(self, world: World) -> Child:
        """Fork a child of this server into a world; ServerEndedError if the server does not start, or has ended."""
        self.wait_until_ready()
        local, remote = socket.socketpair()
        self._children += 1
        log = self.folder / f"child-{self._children}.log"
        kills = count_out_of_memory_kills()
        path = {"before": () if self.python else world.path, "after": world.list_additions() if self.python else ()}
        request = {"op": "fork", "log": str(log), "folder": world.folder, **path}
        try:
            with remote:
                pid = self._request(request, remote.fileno())["pid"]
        except ServerEndedError:
            local.close()
            raise
        return Child(pid=pid, server=self, channel=Channel(local), log=log, kills_before=kills)

    def reap(self, pid: int) -> Mapping[str, Any]:
        """Wait for a child that has ended; return its exit code and its peak memory."""
        try:
            return self._request({"op": "reap", "pid": pid})
        except ServerEndedError:  # and the kernel has ended the child with it
            return {"exit": None, "peak_memory_bytes": None}

    @property
    def alive(self) -> bool:
        is_open = self._control.fileno() >= 0 and (self.trunk is None or self.trunk.alive)
        return is_open and _is_running(self._process) and self.folder.is_dir()

    def close(self) -> None:
        """End the server and with it every child."""
        self._control.close()
        self._remote.close()
        deadline = time.monotonic() + _END_S
        while self._process is not None and _is_running(self._process):
            if time.monotonic() > deadline:
                self._process.kill()
            time.sleep(_POLL_S)
        if isinstance(self._process, psutil.Popen):  # the trunk reaps another
            self._process.wait()

    def wait_until_ready(self) -> None:
        """Wait until its imports are loaded; ServerEndedError if it does not start."""
        if not self._ready:
            if self.trunk is not None:
                self._branch(self.trunk)
            self._control.settimeout(_START_S)
            pid = self._receive_reply()["pid"]
            with contextlib.suppress(psutil.NoSuchProcess):  # a request to it tells
                self._process = self._process or psutil.Process(pid)
            self._ready = True

    def _branch(self, trunk: ForkServer) -> None:
        """Have the trunk fork this server, which imports the rest of the modules."""
        trunk.wait_until_ready()
        fields = {"modules": self.preload, "states": str(self._states), "log": str(self._log)}
        with self._remote:
            trunk.send({"op": "branch", "folder": str(self.folder), **fields}, self._remote.fileno())

    def _request(self, request: Message, *descriptors: int) -> Message:
        self.send(request, *descriptors)
        return self._receive_reply()

    def send(self, request: Message, *descriptors: int) -> None:
        """Send the server a request; ServerEndedError if it has ended."""
        try:
            socket.send_fds(self._control, [json.dumps(request).encode()], descriptors)
        except OSError as error:
            raise self._build_ended_error(f" ({error})") from None

    def _receive_reply(self) -> Message:
        try:
            data = self._control.recv(1 << 16)
        except OSError as error:
            raise self._build_ended_error(f" ({error})") from None
        if not data:
            raise self._build_ended_error()
        message: Message = json.loads(data)
        return message

    def _build_ended_error(self, reason: str = "") -> ServerEndedError:
        name = " of ".join([", ".join(self.preload) or "plain Python", *filter(None, [self.python])])
        try:
            log = self._log.read_text(errors="replace")[-_LOG_TAIL:].strip()
        except OSError:
            log = ""
        return ServerEndedError(f"the fork server of {name} ended{reason}", log)


@dataclass(slots=True)
class Servers:
    """The fork servers of one engine, started on first use and warm from then on."""

    # Of the servers and so of their children.
    environment: Mapping[str, str]
    # For logs and the temporary files of children; removed at the end.
    folder: Path
    # The folder and the path of the next children, and the variables of the servers.
    world: World
    _servers: dict[tuple[str, ...], ForkServer] = field(default_factory=dict)

    def get(self, preload: Iterable[str], python: str = "") -> ForkServer:
        """Get the interpreter's server with these modules imported, or start it without waiting for its imports."""
        modules = tuple(preload)
        key = (python, *modules)
        server = self._servers.get(key)
        if server is not None and not server.alive:
            server.close()
            server = None
        if server is None:
            folder = self.folder / f"server-{time.monotonic_ns()}"
            folder.mkdir(parents=True)
            sources = link_sources(self.folder / "sources") if is_environment(python) else None
            server = self._servers[key] = ForkServer(
                preload=modules,
                environment=self.environment,
                folder=folder,
                python=python,
                sources=sources,
                trunk=self._find_trunk(modules, python),
            )
        return server

    def _find_trunk(self, modules: tuple[str, ...], python: str) -> ForkServer | None:
        """Find the live server with the most of the first of these modules, to import those once."""
        keys = [(python, *modules[:count]) for count in range(len(modules) - 1, 0, -1)]
        return next((self._servers[key] for key in keys if key in self._servers and self._servers[key].alive), None)

    def fork(self, preload: Iterable[str], python: str = "") -> Child:
        """Fork a child that has these modules imported; a killed server is replaced once, else ServerEndedError."""
        server = self.get(preload, python)
        try:
            return server.fork(self.world)
        except ServerEndedError:
            server.close()
        return self.get(server.preload, python).fork(self.world)

    def close_outdated(self) -> None:
        """Close the servers that have imported a file which has changed since: others start in their place."""
        for key in [key for key, server in self._servers.items() if server.is_outdated()]:
            self._servers.pop(key).close()

    def close_interpreter(self, python: str) -> None:
        """End the servers of an interpreter, whose packages have changed."""
        for key in [key for key in self._servers if key[0] == python]:
            self._servers.pop(key).close()

    def close(self) -> None:
        for server in self._servers.values():
            server.close()
        self._servers.clear()
        shutil.rmtree(self.folder, ignore_errors=True)


def _is_running(process: psutil.Process | None) -> bool:
    """Return whether a process runs; one that is not forked yet counts as running."""
    try:
        return process is None or (process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _describe_end(code: int | None) -> str:
    if code is None:
        return "the child process ended"
    if code < 0:
        return f"the child process was ended by {signal.Signals(-code).name}"
    return f"the child process ended with exit code {code}"
