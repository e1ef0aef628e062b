"""Launcher of an engine on this machine, which ends with the process that started it."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from ngbkit import options
from ngbkit.cluster import hubs
from ngbkit.cluster.devices import Device
from ngbkit.cluster.engine import Engine, create_identity
from ngbkit.cluster.hubs import Hub
from ngbkit.cluster.launchers.base import SILENT, Starter, build_settings, starts
from ngbkit.cluster.shell import join_words
from ngbkit.device import launch
from ngbkit.device.engine import Settings
from ngbkit.device.launch import START_S, Launched
from ngbkit.device.world import World
from ngbkit.errors import DeviceError
from ngbkit.user_text import parse_path
from ngbkit.workloads.subprocesses import build_arguments, build_python_path


def start(device: Device, starter: Starter = SILENT) -> Engine:
    """Start the engine of a device of this machine; the error for a failure has its log."""
    state_dir = parse_path(device.state_dir) if device.state_dir else options.get_state_dir()
    identity, variables = create_identity(device.label), dict(os.environ)
    with starts.limit(starter):
        hub, release = hubs.borrow(device, identity)
        try:
            launched, view = _start(device, identity, hub, state_dir)
            process = psutil.Process(launched.pid)
        except Exception as error:
            release()
            raise DeviceError(f"the engine of device {device.label} did not start: {error}") from error

    def stop() -> None:
        launch.stop(launched.folder)
        release()

    def adapt(world: World) -> World:
        return world.compare(variables, device.environment(), shares_packages=device.shares_packages)

    def is_connected() -> bool:
        # A controller learns late of an engine that was killed, and never without the engine's folder.
        with suppress(psutil.Error):
            return hub.is_alive and process.status() != psutil.STATUS_ZOMBIE
        return False

    return Engine(
        device=device.label,
        view=view,
        state_dir=state_dir,
        stop=stop,
        is_connected=is_connected,
        adapt=adapt,
    )


def _start(device: Device, identity: str, hub: Hub, state_dir: Path) -> tuple[Launched, Any]:
    """Start an engine; return it and its view."""
    cores = device.cores or tuple(sorted(os.sched_getaffinity(0)))
    fields = {"state_dir": str(state_dir), "cores": cores, "watch": os.getpid()}
    launched = _launch(device, build_settings(device, identity, hub.connection, **fields))
    view = hub.wait_for_engine(identity, START_S, lambda: launch.is_running(launched.folder))
    if view is None:
        is_missing = hub.is_alive and not launch.is_running(launched.folder)
        reason = f"it ended; {launch.describe_log(launched.folder)}" if is_missing else hub.explain_absence()
        launch.stop(launched.folder)
        raise DeviceError(reason)
    return launched, view


def _launch(device: Device, settings: Settings) -> Launched:
    if device.python is None and not device.setup:
        # The engine can import what this process can: plugins beside a notebook, a checkout.
        settings.environment["PYTHONPATH"] = build_python_path()
        return launch.launch(settings)
    program = join_words([device.python or sys.executable, *build_arguments("ngbkit.device.launch")])
    answer = json.loads(
        device.shell.run(program, stdin=settings.to_json().encode(), timeout_s=2 * START_S).splitlines()[-1]
    )
    if "error" in answer:
        raise DeviceError(answer["error"])
    return Launched(pid=answer["pid"], folder=Path(answer["folder"]))
