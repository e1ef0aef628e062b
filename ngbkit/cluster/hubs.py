"""Controllers, each with its client: one for each remote device, unless its user trusts a group to share one.

A controller's key allows to run code on all of its engines. So the devices of this machine share one, and those of a
trust group, whose user has said that each may run code on the others.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from ngbkit import files, limits, options
from ngbkit.cluster.controller import READY
from ngbkit.cluster.devices import Device
from ngbkit.cluster.safe_client import GuardedClient
from ngbkit.device.launch import START_S, check_machine, inherit_variables
from ngbkit.errors import DeviceError
from ngbkit.workloads.subprocesses import build_arguments, build_python_path

# A controller lists an engine after its second heartbeat, and drops it after five minutes of silence: a link may be
# down for one, or an engine paused. The launchers notice the death of an engine sooner.
HEARTBEAT_MS = 250
MAX_MISSED_HEARTBEATS = 1200
_POLL_S = 0.02
_LOG = "controller.log"
# Another program may have chosen one of its ports before: another controller then has others.
_MOST_ATTEMPTS = 5
_PORT_TAKEN = "Address already in use"


class _PortError(DeviceError):
    """Another program listens on a port of a controller."""


@dataclass(slots=True, eq=False)
class Hub:
    """A running controller and its client."""

    # Its profile: connection files and logs.
    folder: Path
    process: subprocess.Popen[bytes]
    client: GuardedClient
    # The addresses, the ports and the key for engines, as ipyparallel writes them.
    connection: dict[str, Any]
    # The identities of the engines that have borrowed it.
    users: set[str] = field(default_factory=set)

    @classmethod
    def start(cls, address: str | None = None) -> Hub:
        """Start a controller that listens on loopback or, encrypted, on an address of this machine."""
        check_machine()
        for _ in range(_MOST_ATTEMPTS - 1):
            with suppress(_PortError):
                return cls._start(address)
        return cls._start(address)

    @classmethod
    def _start(cls, address: str | None) -> Hub:
        folder = files.make_scratch(options.make_state_dir() / options.LAYOUT.clusters)
        command = [sys.executable, *build_arguments("ngbkit.cluster.controller", f"--profile-dir={folder}")]
        command += [f"--HeartMonitor.period={HEARTBEAT_MS}"]
        command += [f"--HeartMonitor.max_heartmonitor_misses={MAX_MISSED_HEARTBEATS}"]
        # The journals have all records; a controller with a database would grow with each message.
        command += ["--IPController.db_class=ipyparallel.controller.dictdb.NoDB", "--log-level=WARN"]
        if address is not None:
            command += [f"--ip={address}", f"--location={address}", "--IPController.enable_curve=True"]
        with open(folder / _LOG, "wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=folder,  # ipyparallel does not start in a folder that was removed
                env={
                    **inherit_variables(),
                    "NGBKIT_WATCH": str(os.getpid()),
                    "IPYTHONDIR": str(folder / "ipython"),
                    # The controller can import what this process can.
                    "PYTHONPATH": build_python_path(),
                },
            )
        try:
            engines, clients = (folder / "security" / f"ipcontroller-{kind}.json" for kind in ("engine", "client"))
            _wait_until_ready(process, folder / READY)
            connection = json.loads(engines.read_text())
            client = GuardedClient(json.loads(clients.read_text()), timeout=START_S)
        except Exception as error:
            _kill(process)
            text = _read_log(folder)
            shutil.rmtree(folder, ignore_errors=True)
            kind = _PortError if _PORT_TAKEN in text else DeviceError
            raise kind(f"the controller did not start: {error}; {limits.describe_log(text)}") from error
        return cls(folder, process, client, connection)

    def wait_for_engine(
        self, identity: str, timeout_s: float, is_alive: Callable[[], bool] = lambda: True, pause_s: float = _POLL_S
    ) -> Any:
        """Return the view of the engine of that identity once it has registered; None after a timeout or a death."""
        deadline = time.monotonic() + timeout_s
        while True:
            for number in self.client.ids:
                if self.client._engines.get(number) == identity:
                    return self.client[number]
            if time.monotonic() > deadline or not self.is_alive or not is_alive():
                return None
            time.sleep(pause_s)

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None and not self.client._closed

    def explain_absence(self) -> str:
        """Return why an engine that was waited for has not registered."""
        if self.is_alive:
            return f"it did not register in {START_S:g} s"
        return f"its controller ended; {limits.describe_log(_read_log(self.folder))}"

    def stop(self) -> None:
        """End the controller, and remove its files."""
        self.client.close()
        _kill(self.process)
        shutil.rmtree(self.folder, ignore_errors=True)


# The state folder, the group, and the address on which the controller listens, None for loopback.
_Key = tuple[Path, tuple[str, str], str | None]
_shared: dict[_Key, Hub] = {}
# Controllers start side by side, and each only once.
_locks: defaultdict[_Key, threading.Lock] = defaultdict(threading.Lock)


def borrow(device: Device, identity: str) -> tuple[Hub, Callable[[], None]]:
    """Return the controller for an engine, and its release; it starts with its first engine and ends with its last."""
    is_direct = device.launch == "slurm" or device.network == "direct"
    key = options.get_state_dir(), _find_group(device, identity), device.address if is_direct else None
    with _locks[key]:
        hub = _shared.get(key)
        if hub is None or not hub.is_alive:
            if hub is not None:
                hub.stop()
            hub = _shared[key] = Hub.start(key[2])
        hub.users.add(identity)

    def release() -> None:
        with _locks[key]:
            hub.users.discard(identity)
            if not hub.users:
                hub.stop()
                if _shared.get(key) is hub:
                    del _shared[key]

    return hub, release


def _find_group(device: Device, identity: str) -> tuple[str, str]:
    if device.trust is not None:
        return "trust", device.trust
    return ("local", "") if device.launch == "local" else ("own", identity)


def _wait_until_ready(process: subprocess.Popen[bytes], ready: Path) -> None:
    """Wait until a controller listens on all of its ports; it has written its connection files before."""
    deadline = time.monotonic() + START_S
    while not ready.exists():
        if process.poll() is not None:
            raise DeviceError(f"it ended with {process.returncode}")
        if time.monotonic() > deadline:
            raise DeviceError(f"its schedulers did not start in {START_S:g} s")
        time.sleep(_POLL_S)


def _read_log(folder: Path) -> str:
    """Read the end of a controller's log."""
    with suppress(OSError):
        return (folder / _LOG).read_text(errors="replace")[-2000:].strip()
    return ""


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the controller and its children, which have nothing to save, and wait for their end."""
    try:
        children = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError, psutil.NoSuchProcess):
        children = []
    process.wait()
    deadline = time.monotonic() + START_S
    while any(map(_is_running, children)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _is_running(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
