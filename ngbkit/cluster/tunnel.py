"""A reverse tunnel over ssh: it makes a controller's loopback ports available on a device's loopback.

A process of its own keeps the tunnel up, so that a busy notebook does not break it and an ended one leaves none behind.
Run as ``python -m ngbkit.cluster.tunnel``, it reads a request from its standard input and prints a line of JSON at each
change: ``up`` with the ports on the device, ``down``, or ``lost`` with ssh's output.
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ngbkit.cluster.shell import SSH, SSH_FAILED, Shell
from ngbkit.device.keepalive import BEAT, BEAT_S, GOODBYE, Keepalive, greet
from ngbkit.device.process_lifetime import end_with, end_with_parent
from ngbkit.workloads.subprocesses import build_arguments, build_python_path

UP_S = 60.0
# After this time without a link the tunnel is lost; an engine on the device waits a little longer.
RECONNECT_S = 120.0
_RETRY_S = 1.0
_GOODBYE_S = 5.0
_MOST_STRANGERS = 64
_ACCEPT_AGAIN_S = 0.1
_ALLOCATED = re.compile(r"Allocated port (\d+) for remote forward to 127\.0\.0\.1:(\d+)")


@dataclass(slots=True, eq=False)
class Tunnel:
    """A tunnel to a host, kept up until it is closed."""

    # The host as ssh calls it.
    host: str
    # The process that keeps the tunnel up.
    process: subprocess.Popen[bytes]
    # Ports on the device, by port here.
    ports: Mapping[int, int]
    # The address of this client for an engine on the device.
    keepalive: Keepalive
    state: str = "up"
    # The output of ssh at the last change.
    output: str = ""
    _reports: queue.SimpleQueue[dict[str, Any]] = field(default_factory=queue.SimpleQueue)
    _listener: threading.Thread | None = None

    @classmethod
    def open(cls, host: str, ports: Sequence[int]) -> Tunnel:
        """Forward loopback ports of this machine to loopback ports of `host`, which picks their numbers."""
        process = subprocess.Popen(
            [sys.executable, *build_arguments("ngbkit.cluster.tunnel")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": build_python_path()},
        )
        token = secrets.token_hex(16)
        tunnel = cls(host, process, {}, Keepalive(host="127.0.0.1", port=0, token=token), state="starting")
        tunnel._send({"host": host, "ports": list(ports), "token": token, "watch": os.getpid()})
        tunnel._listener = threading.Thread(target=tunnel._listen, name=f"ngbkit-tunnel-{host}", daemon=True)
        tunnel._listener.start()
        try:
            first = tunnel._reports.get(timeout=UP_S)
        except queue.Empty:
            first = {"state": "lost", "said": f"no tunnel within {UP_S:g} s"}
        if first["state"] != "up":
            tunnel.close()
            raise Shell(host=host).explain(SSH_FAILED, first["said"])
        tunnel.ports = {int(local): remote for local, remote in first["ports"].items()}
        tunnel.keepalive = Keepalive(host="127.0.0.1", port=tunnel.ports[first["lifeline"]], token=token)
        return tunnel

    def close(self) -> None:
        """Say goodbye to the engine on the device, wait for its end, and close the tunnel."""
        with contextlib.suppress(OSError):
            self._send({"goodbye": True})
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

    def _send(self, request: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                report = json.loads(line)
                self.state, self.output = report["state"], report.get("said", "")
                self._reports.put(report)
        self.state = "lost"
        self._reports.put({"state": "lost", "said": self.output or "the process of the tunnel has ended"})


class _Keeper:
    """Keeps ssh running, and the connections of the engines on the device."""

    def __init__(
        self, host: str, ports: Sequence[int], token: str, report: Callable[[Mapping[str, Any]], None]
    ) -> None:
        self._host, self._token, self._report = host, token, report
        self._server = socket.create_server(("127.0.0.1", 0))
        self._keepalive_port = int(self._server.getsockname()[1])
        # Ports on the device, by port here; for 0 the server picks one, which later connections request again.
        self._ports = dict.fromkeys([*ports, self._keepalive_port], 0)
        # Guards the connections, which several threads use.
        self._lock = threading.Lock()
        # Connections that have not yet proved to be an engine's, the oldest first, and those of engines.
        self._strangers: dict[socket.socket, None] = {}
        self._engines: list[socket.socket] = []
        self._leaving = threading.Event()
        self._up = False
        self._ssh: subprocess.Popen[bytes] | None = None

    def keep(self) -> None:
        """Run ssh until a goodbye, or until the link has been down for too long."""
        for loop in (self._accept_engines, self._send_heartbeats, self._wait_for_goodbye):
            threading.Thread(target=loop, daemon=True).start()
        deadline = time.monotonic()  # no second try unless the first one succeeds
        while True:
            output = self._run_ssh()
            if self._leaving.is_set():
                return
            if self._up:
                deadline = time.monotonic() + RECONNECT_S
                self._report({"state": "down", "said": output})
            if time.monotonic() >= deadline:
                self._report({"state": "lost", "said": output})
                return
            time.sleep(_RETRY_S)

    def _run_ssh(self) -> str:
        """Run ssh to its end and return its last output; set `_up` once it is connected."""
        self._up = False
        forwards = [
            word for local, remote in self._ports.items() for word in ("-R", f"127.0.0.1:{remote}:127.0.0.1:{local}")
        ]
        command = [*SSH, "-N", "-o", "ExitOnForwardFailure=yes", "-o", "LogLevel=INFO"]
        # The user's ControlMaster would keep the ports for longer than the tunnel lives.
        command += ["-o", "ControlMaster=no", "-o", "ControlPath=none", *forwards, self._host]
        self._ssh = ssh = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            preexec_fn=end_with_parent,
        )
        last: list[str] = []
        assert ssh.stderr is not None
        with ssh.stderr as lines:
            for line in lines:
                text = line.decode(errors="replace").rstrip()
                allocated = _ALLOCATED.search(text)
                if allocated:
                    self._ports[int(allocated[2])] = int(allocated[1])
                    if all(self._ports.values()):
                        self._report_up()
                else:
                    last = [*last[-20:], text]
        ssh.wait()
        return "\n".join(last)

    def _report_up(self) -> None:
        self._up = True
        self._report({"state": "up", "ports": self._ports, "lifeline": self._keepalive_port})

    def _accept_engines(self) -> None:
        """Accept connections until the goodbye: any user of either machine can open them, and none ends this loop."""
        while not self._leaving.is_set():
            try:
                self._accept_engine()
            except (OSError, RuntimeError):  # reset before it was accepted, too many open files, too many threads
                time.sleep(_ACCEPT_AGAIN_S)

    def _accept_engine(self) -> None:
        connection, _ = self._server.accept()
        with self._lock:
            # An engine answers at once: the oldest connections without an answer are the least likely to be one.
            crowded = list(self._strangers)[: max(0, len(self._strangers) + 1 - _MOST_STRANGERS)]
            self._strangers[connection] = None
        for stranger in crowded:
            with contextlib.suppress(OSError):
                stranger.shutdown(socket.SHUT_RDWR)  # wakes its thread, which closes it
        threading.Thread(target=self._greet, args=(connection,), daemon=True).start()

    def _greet(self, connection: socket.socket) -> None:
        """Keep the connection of an engine, and close any other."""
        is_engine = greet(connection, self._token)
        with self._lock:
            del self._strangers[connection]
            if is_engine:
                self._engines.append(connection)
        if not is_engine:
            connection.close()
        elif not self._up:
            # ssh does not announce ports requested by number: an engine that reconnects proves that they are open.
            self._report_up()

    def _send_heartbeats(self) -> None:
        while True:
            time.sleep(BEAT_S)
            self._broadcast(BEAT)

    def _broadcast(self, message: bytes) -> None:
        with self._lock:
            for connection in list(self._engines):
                try:
                    connection.settimeout(1.0)
                    connection.sendall(message)
                except OSError:
                    self._engines.remove(connection)
                    connection.close()

    def _wait_for_goodbye(self) -> None:
        """Wait for the client's goodbye or for its end, which closes the pipe; then end."""
        goodbye = sys.stdin.readline()
        self._leaving.set()
        if goodbye:
            self._broadcast(GOODBYE)
            self._wait_for_engines()
        if self._ssh is not None:
            self._ssh.kill()
        time.sleep(_GOODBYE_S)
        os._exit(0)

    def _wait_for_engines(self) -> None:
        """Wait until each engine has closed its connection, as the end of its process does."""
        with selectors.DefaultSelector() as selector:
            with self._lock:
                for connection in self._engines:
                    selector.register(connection, selectors.EVENT_READ)
            deadline = time.monotonic() + _GOODBYE_S
            while selector.get_map() and time.monotonic() < deadline:
                for key, _ in selector.select(timeout=0.1):
                    with contextlib.suppress(OSError):
                        if key.fileobj.recv(64):  # type: ignore[union-attr]
                            continue
                    selector.unregister(key.fileobj)


def _report(change: Mapping[str, Any]) -> None:
    try:
        sys.stdout.write(json.dumps(change) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(0)


def main() -> None:
    """Keep up the tunnel that the first line on the standard input describes."""
    request = json.loads(sys.stdin.readline())
    end_with(request["watch"])
    _Keeper(request["host"], request["ports"], request["token"], _report).keep()


if __name__ == "__main__":
    main()
