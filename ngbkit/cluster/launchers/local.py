"""Launcher of an engine on this machine, which ends with the process that started it."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from ngbkit import options
from ngbkit.cluster.devices import Device
from ngbkit.cluster.engine import Engine, create_identity
from ngbkit.cluster.hub import Hub, build_python_path
from ngbkit.cluster.launchers.base import SILENT, Starter
from ngbkit.cluster.shell import join_words
from ngbkit.device import launch
from ngbkit.device.engine import Settings
from ngbkit.device.launch import START_S, Launched
from ngbkit.errors import DeviceError
from ngbkit.user_text import parse_path

_lock = threading.Lock()
# The devices of this machine share a controller, by state folder: each trusts the others.
_hubs: dict[Path, tuple[Hub, set[str]]] = {}


def start(device: Device, starter: Starter = SILENT) -> Engine:
    """Start the engine of a device of this machine; the error for a failure has its log."""
    del starter  # it starts in seconds or fails
    state_dir = parse_path(device.state_dir) if device.state_dir else options.get_state_dir()
    identity = create_identity(device.label)
    hub, release = _borrow_hub(identity)
    settings = Settings(
        label=device.label,
        identity=identity,
        connection=hub.connection,
        state_dir=str(state_dir),
        cores=device.cores or tuple(sorted(os.sched_getaffinity(0))),
        environment=dict(device.environment()),
        watch=os.getpid(),
    )
    try:
        launched = _launch(device, settings)
        view = hub.wait_for_engine(identity, START_S, lambda: launch.is_running(launched.folder))
        if view is None:
            if not hub.is_alive:
                reason = "its controller ended"
            elif not launch.is_running(launched.folder):
                reason = "it ended"
            else:
                reason = f"it did not register in {START_S:g} s"
            launch.stop(launched.folder)
            raise DeviceError(reason)
    except Exception as error:
        release()
        raise DeviceError(f"the engine of device {device.label} did not start: {error}") from error

    def stop() -> None:
        launch.stop(launched.folder)
        release()

    return Engine(device=device.label, view=view, state_dir=state_dir, stop=stop, is_connected=lambda: hub.is_alive)


def _launch(device: Device, settings: Settings) -> Launched:
    if device.python is None and not device.setup:
        # The engine can import what this process can: plugins beside a notebook, a checkout.
        settings.environment["PYTHONPATH"] = build_python_path()
        return launch.launch(settings)
    program = join_words([device.python or sys.executable, "-m", "ngbkit.device.launch"])
    answer = json.loads(
        device.shell.run(program, stdin=settings.to_json().encode(), timeout_s=2 * START_S).splitlines()[-1]
    )
    if "error" in answer:
        raise DeviceError(answer["error"])
    return Launched(pid=answer["pid"], folder=Path(answer["folder"]))


def _borrow_hub(identity: str) -> tuple[Hub, Callable[[], None]]:
    """Return the shared controller and its release; it starts with the first engine and ends with the last."""
    key = options.get_state_dir()
    with _lock:
        hub, users = _hubs.get(key, (None, set()))
        if hub is None or not hub.is_alive:
            if hub is not None:
                hub.stop()
            hub, users = Hub.start(), set()
            _hubs[key] = hub, users
        users.add(identity)

    def release() -> None:
        with _lock:
            users.discard(identity)
            if not users:
                hub.stop()
                if _hubs.get(key, (None,))[0] is hub:
                    del _hubs[key]

    return hub, release
