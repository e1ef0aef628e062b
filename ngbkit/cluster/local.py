"""An engine on this machine: started for the user, labelled, pinned, and gone when the process that started it is."""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import shutil
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from ngbkit import options, scratch
from ngbkit.cluster.engine import Engine
from ngbkit.errors import DeviceError

START_S = 60.0
_lock = threading.Lock()
_engines: dict[tuple[str, Path], Engine] = {}


def engine(device: str = "cpu", cores: Sequence[int] | None = None) -> Engine:
    """The engine of a device of this machine: the one that runs, or a new one.

    Parameters
    ----------
    device
        Its label.
    cores
        The cores that it may use. None: those of this process.

    Raises
    ------
    DeviceError
        It did not come up; the message holds its log.
    """
    key = device, options.state_dir()
    with _lock:
        running = _engines.get(key)
        if running is not None and running.alive():
            return running
        if running is not None:
            running.close()
        _engines[key] = _start(device, cores)
        return _engines[key]


def close() -> None:
    """End every engine that was started here."""
    with _lock:
        for running in _engines.values():
            running.close()
        _engines.clear()


def _start(device: str, cores: Sequence[int] | None) -> Engine:
    import ipyparallel

    profile = scratch.make(options.state_dir() / "clusters")
    pinned = os.sched_getaffinity(0) if cores is None else cores
    environment = {
        "NGBKIT_WATCH": str(os.getpid()),
        "NGBKIT_CORES": ",".join(map(str, sorted(pinned))),
        # What this process can import its engine can import too: plugins beside a notebook, a checkout.
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    cluster = ipyparallel.Cluster(
        n=0,
        profile_dir=str(profile),
        controller_args=["--HeartMonitor.period=500"],
        delay=0,
        # Whoever ends with NGBKIT_WATCH needs no goodbye, which would wait for a busy engine.
        shutdown_atexit=False,
        log_level=logging.ERROR,
    )
    try:
        cluster.start_controller_sync(
            controller_cmd=[sys.executable, "-m", "ngbkit.cluster.controller"],
            environment=environment,
        )
        cluster.start_engines_sync(
            1,
            engine_set_id=device,
            engine_cmd=[sys.executable, "-m", "ngbkit.device.engine"],
            # The random part is mandatory: a label that was used before does not register.
            engine_args=[f"--Session.session=ngb.{device}.{secrets.token_hex(4)}"],
            environment=environment,
        )
        client = cluster.connect_client_sync()
        client.wait_for_engines(1, timeout=START_S, interactive=False)
    except Exception as error:
        log = _logs(profile)
        _stop(cluster, profile)
        raise DeviceError(f"the engine of device {device} did not come up in {START_S:g} s: {error}\n{log}") from error

    def stop() -> None:
        client.close()
        _stop(cluster, profile)

    atexit.register(shutil.rmtree, profile, ignore_errors=True)
    return Engine(device=device, view=client[client.ids[0]], state_dir=options.state_dir(), stop=stop)


def _stop(cluster: Any, profile: Path) -> None:
    # A busy engine would be waited for; nothing of it is lost by a kill.
    processes = [*cluster.engines.values(), cluster.controller]
    pids = [pid for launcher in processes for pid in _pids(launcher)]
    for pid in pids:
        try:
            os.killpg(pid, 9)
        except (ProcessLookupError, PermissionError):
            continue
    psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=5)
    shutil.rmtree(profile, ignore_errors=True)


def _pids(launcher: Any) -> list[int]:
    """The processes of a launcher, or of each launcher in a set; every one leads a process group of its own."""
    inner = getattr(launcher, "launchers", None)
    if inner is not None:
        return [pid for one in inner.values() for pid in _pids(one)]
    pid = getattr(launcher, "pid", -1)
    return [pid] if pid and pid > 0 else []


def _logs(profile: Path) -> str:
    return "\n".join(file.read_text(errors="replace")[-2000:] for file in sorted(profile.glob("log/*.log")))
