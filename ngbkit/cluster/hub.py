"""A controller of ours, with the client that talks through it: one for this machine's devices, one for each far one.

All who hold a controller's key can ask its engines to run code. So a far device gets a key that opens nothing but
itself.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from ngbkit import files, options
from ngbkit.cluster.safe_client import GuardedClient
from ngbkit.errors import DeviceError

START_S = 60.0
# An engine is shown after its second heartbeat. It is gone when it has been silent for five minutes, since a link may
# be down for one, or an engine stopped; what dies before says so itself.
HEARTBEAT_MS = 250
MOST_SILENT = 1200
_POLL_S = 0.02


@dataclass(slots=True, eq=False)
class Hub:
    """A running controller and a client of it.

    Parameters
    ----------
    folder
        Its profile: connection files and logs.
    process
        The controller.
    client
        Connected to it.
    connection
        What an engine needs to connect: addresses, ports and the key, as ipyparallel writes them.
    """

    folder: Path
    process: subprocess.Popen[bytes]
    client: GuardedClient
    connection: dict[str, Any]

    @classmethod
    def start(cls, address: str | None = None) -> Hub:
        """Start a controller that listens on loopback, or, encrypted, on an address of this machine.

        Raises
        ------
        DeviceError
            It did not come up; the message holds its log.
        """
        folder = files.make_scratch(options.make_state_dir() / "clusters")
        command = [sys.executable, "-m", "ngbkit.cluster.controller", f"--profile-dir={folder}"]
        command += [f"--HeartMonitor.period={HEARTBEAT_MS}", f"--HeartMonitor.max_heartmonitor_misses={MOST_SILENT}"]
        # What was measured is kept in journals; a controller that keeps every message grows with each.
        command += ["--IPController.db_class=ipyparallel.controller.dictdb.NoDB", "--log-level=WARN"]
        if address is not None:
            command += [f"--ip={address}", f"--location={address}", "--IPController.enable_curve=True"]
        log = folder / "controller.log"
        with open(log, "wb") as written:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={
                    **os.environ,
                    "NGBKIT_WATCH": str(os.getpid()),
                    "IPYTHONDIR": str(folder / "ipython"),
                    # What this process can import the controller can import too.
                    "PYTHONPATH": python_path(),
                },
            )
        try:
            engines, clients = (folder / "security" / f"ipcontroller-{kind}.json" for kind in ("engine", "client"))
            _wait_for(process, engines, clients)
            connection = json.loads(engines.read_text())
            client = GuardedClient(json.loads(clients.read_text()), timeout=START_S)
        except Exception as error:
            _end(process)
            said = log.read_text(errors="replace")[-2000:]
            shutil.rmtree(folder, ignore_errors=True)
            raise DeviceError(f"the controller did not come up: {error}\n{said}") from error
        return cls(folder, process, client, connection)

    def wait_for(self, identity: str, timeout_s: float, lives: Callable[[], bool] = lambda: True) -> Any:
        """The view of the engine of that identity, as soon as it has registered.

        None where it has not in that time, or will not: the controller, or the engine itself, does not live any more.
        """
        ends = time.monotonic() + timeout_s
        while True:
            found = [number for number in self.client.ids if self.client._engines.get(number) == identity]
            if found:
                return self.client[found[0]]
            if time.monotonic() > ends or not self.alive or not lives():
                return None
            time.sleep(_POLL_S)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None and not self.client._closed

    def stop(self) -> None:
        """End it, with all that it keeps."""
        self.client.close()
        _end(self.process)
        shutil.rmtree(self.folder, ignore_errors=True)


def python_path() -> str:
    """Where this process finds modules, for one that is to find the same: plugins beside a notebook, a checkout."""
    return os.pathsep.join(filter(None, sys.path))


def _wait_for(process: subprocess.Popen[bytes], *files: Path) -> None:
    """Until the files are there and whole; ipyparallel writes them in place."""
    ends = time.monotonic() + START_S
    for file in files:
        while True:
            try:
                json.loads(file.read_text())
                break
            except (OSError, ValueError):
                if process.poll() is not None:
                    raise DeviceError(f"it ended with {process.returncode}") from None
                if time.monotonic() > ends:
                    raise DeviceError(f"it wrote no connection file in {START_S:g} s") from None
            time.sleep(_POLL_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the controller and the processes that it has started; there is nothing in them to be lost."""
    try:
        group = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError, psutil.NoSuchProcess):
        group = []
    process.wait()
    ends = time.monotonic() + START_S
    while any(_lives(one) for one in group) and time.monotonic() < ends:
        time.sleep(_POLL_S)


def _lives(process: psutil.Process) -> bool:
    """Whether it runs; one that has ended and that nobody has asked about since does not."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
