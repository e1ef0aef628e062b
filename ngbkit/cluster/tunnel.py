"""The ports of a controller on loopback here, reached from a device on loopback there: a reverse tunnel over ssh.

A process of its own keeps the tunnel up, so that neither a busy notebook nor its end leaves one behind. Run as ``python
-m ngbkit.cluster.tunnel``, it reads what it is to do on its standard input and answers with a line of JSON whenever
something changes: ``up`` with the ports over there, ``down``, or ``lost`` with what ssh said.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import secrets
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ngbkit.cluster.hub import python_path
from ngbkit.cluster.shell import SSH, SSH_FAILED, Shell
from ngbkit.device.keepalive import BEAT, BEAT_S, GOODBYE, Lifeline
from ngbkit.device.process_lifetime import end_with, end_with_parent

UP_S = 60.0
# A link that is not back by then is lost; an engine over there waits a little longer than this.
RECONNECT_S = 120.0
_AGAIN_S = 1.0
_GOODBYE_S = 5.0
_ALLOCATED = re.compile(r"Allocated port (\d+) for remote forward to 127\.0\.0\.1:(\d+)")


@dataclass(slots=True, eq=False)
class Tunnel:
    """A tunnel to a host, kept up until it is closed.

    Parameters
    ----------
    host
        What ssh calls the machine.
    process
        The process that keeps it.
    ports
        Over there, by port here.
    lifeline
        Where an engine over there finds this client.
    """

    host: str
    process: subprocess.Popen[bytes]
    ports: Mapping[int, int]
    lifeline: Lifeline
    state: str = "up"
    said: str = ""
    _told: queue.SimpleQueue[dict[str, Any]] = field(default_factory=queue.SimpleQueue)
    _listener: threading.Thread | None = None

    @classmethod
    def open(cls, host: str, ports: Sequence[int]) -> Tunnel:
        """Make loopback `ports` of this machine reachable on loopback of `host`, at ports that it picks.

        Raises
        ------
        DeviceError
            The host cannot be reached, or forbids it.
        """
        process = subprocess.Popen(
            [sys.executable, "-m", "ngbkit.cluster.tunnel"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": python_path()},
        )
        token = secrets.token_hex(16)
        tunnel = cls(host, process, {}, Lifeline(host="127.0.0.1", port=0, token=token), state="starting")
        tunnel._tell({"host": host, "ports": list(ports), "token": token, "watch": os.getpid()})
        tunnel._listener = threading.Thread(target=tunnel._listen, name=f"ngbkit-tunnel-{host}", daemon=True)
        tunnel._listener.start()
        try:
            first = tunnel._told.get(timeout=UP_S)
        except queue.Empty:
            first = {"state": "lost", "said": f"it was not up within {UP_S:g} s"}
        if first["state"] != "up":
            tunnel.close()
            raise Shell(host=host).explain(SSH_FAILED, first["said"])
        found = {int(here): there for here, there in first["ports"].items()}
        tunnel.ports = found
        tunnel.lifeline = Lifeline(host="127.0.0.1", port=found[first["lifeline"]], token=token)
        return tunnel

    @property
    def lost(self) -> bool:
        return self.state == "lost"

    def close(self) -> None:
        """Say goodbye to the engine over there, wait until it has gone, and take the tunnel down."""
        with contextlib.suppress(OSError):
            self._tell({"goodbye": True})
        try:
            self.process.wait(_GOODBYE_S * 2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        with contextlib.suppress(OSError):
            assert self.process.stdin is not None
            self.process.stdin.close()
        if self._listener is not None:
            self._listener.join(_GOODBYE_S)
        self.state = "lost"

    def _tell(self, what: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what).encode() + b"\n")
        self.process.stdin.flush()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                told = json.loads(line)
                self.state, self.said = told["state"], told.get("said", "")
                self._told.put(told)
        self.state = "lost"
        self._told.put({"state": "lost", "said": self.said or "the process that keeps the tunnel has ended"})


class _Keeper:
    """Keeps ssh running, and the lifeline of the engines at its other end."""

    def __init__(self, host: str, ports: Sequence[int], token: str) -> None:
        self._host, self._token = host, token
        self._server = socket.create_server(("127.0.0.1", 0))
        self._lifeline = int(self._server.getsockname()[1])
        # Over there, by port here; 0 has the server pick one, and after that it is to be the same again.
        self._ports = dict.fromkeys([*ports, self._lifeline], 0)
        self._lines: list[socket.socket] = []
        self._leaving = threading.Event()
        self._up = False
        self._ssh: subprocess.Popen[bytes] | None = None

    def keep(self) -> None:
        """Until goodbye, or until the link has been down for too long."""
        for work in (self._greet, self._beat, self._take_orders):
            threading.Thread(target=work, daemon=True).start()
        ends = time.monotonic()  # the first try is the only one
        while True:
            said = self._run_ssh()
            if self._leaving.is_set():
                return
            if self._up:
                ends = time.monotonic() + RECONNECT_S
                _answer({"state": "down", "said": said})
            if time.monotonic() >= ends:
                _answer({"state": "lost", "said": said})
                return
            time.sleep(_AGAIN_S)

    def _run_ssh(self) -> str:
        """ssh, from its start to its end; what it said last. Once it has got through, `_up` is true."""
        self._up = False
        forwards = [
            word for here, there in self._ports.items() for word in ("-R", f"127.0.0.1:{there}:127.0.0.1:{here}")
        ]
        words = [*SSH, "-N", "-o", "ExitOnForwardFailure=yes", "-o", "LogLevel=INFO"]
        # A master of the user's own would hold the ports for longer than the tunnel lives.
        words += ["-o", "ControlMaster=no", "-o", "ControlPath=none", *forwards, self._host]
        self._ssh = ssh = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            preexec_fn=end_with_parent,
        )
        said: list[str] = []
        assert ssh.stderr is not None
        with ssh.stderr as lines:
            for line in lines:
                text = line.decode(errors="replace").rstrip()
                allocated = _ALLOCATED.search(text)
                if allocated:
                    self._ports[int(allocated[2])] = int(allocated[1])
                    if all(self._ports.values()):
                        self._tell_up()
                else:
                    said = [*said[-20:], text]
        ssh.wait()
        return "\n".join(said)

    def _tell_up(self) -> None:
        self._up = True
        _answer({"state": "up", "ports": self._ports, "lifeline": self._lifeline})

    def _greet(self) -> None:
        while True:
            line, _ = self._server.accept()
            line.sendall(self._token.encode() + b"\n")
            self._lines.append(line)
            if not self._up:
                # Ports asked for by number are not announced: an engine that comes back shows that they are there.
                self._tell_up()

    def _beat(self) -> None:
        while True:
            time.sleep(BEAT_S)
            self._say(BEAT)

    def _say(self, word: bytes) -> None:
        for line in list(self._lines):
            try:
                line.settimeout(1.0)
                line.sendall(word)
            except OSError:
                self._lines.remove(line)
                line.close()

    def _take_orders(self) -> None:
        """A goodbye; or the end of the pipe, which is the client's own."""
        order = sys.stdin.readline()
        self._leaving.set()
        if order:
            self._say(GOODBYE)
            self._wait_for_engines()
        if self._ssh is not None:
            self._ssh.kill()
        time.sleep(_GOODBYE_S)
        os._exit(0)

    def _wait_for_engines(self) -> None:
        """Until each has let go of its line, which the end of its process does."""
        with selectors.DefaultSelector() as waiting:
            for line in self._lines:
                waiting.register(line, selectors.EVENT_READ)
            ends = time.monotonic() + _GOODBYE_S
            while waiting.get_map() and time.monotonic() < ends:
                for key, _ in waiting.select(timeout=0.1):
                    with contextlib.suppress(OSError):
                        if key.fileobj.recv(64):  # type: ignore[union-attr]
                            continue
                    waiting.unregister(key.fileobj)


def _answer(what: Mapping[str, Any]) -> None:
    try:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(0)


def main() -> None:
    """Keep the tunnel that the first line on the standard input describes."""
    told = json.loads(sys.stdin.readline())
    end_with(told["watch"])
    _Keeper(told["host"], told["ports"], told["token"]).keep()


if __name__ == "__main__":
    main()
