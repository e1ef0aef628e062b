"""An engine on this machine: gone when the process that started it is."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from ngbkit import options
from ngbkit.cluster.devices import Device
from ngbkit.cluster.engine import Engine, identity
from ngbkit.cluster.hub import START_S, Hub, python_path
from ngbkit.cluster.launchers.base import NOBODY, Starter
from ngbkit.cluster.shell import words
from ngbkit.device import launch
from ngbkit.device.engine import Settings
from ngbkit.device.launch import Launched
from ngbkit.errors import DeviceError

_lock = threading.Lock()
# The devices of this machine trust each other: they share a controller, by state folder.
_hubs: dict[Path, tuple[Hub, set[str]]] = {}


def start(device: Device, starter: Starter = NOBODY) -> Engine:
    """Start the engine of a device of this machine.

    Raises
    ------
    DeviceError
        It did not come up; the message holds its log.
    """
    del starter  # it is up in seconds, or not at all
    state_dir = Path(device.state_dir).expanduser() if device.state_dir else options.state_dir()
    name = identity(device.label)
    settings = Settings(
        label=device.label,
        identity=name,
        connection={},
        state_dir=str(state_dir),
        cores=device.cores or tuple(sorted(os.sched_getaffinity(0))),
        environment=dict(device.environment()),
        watch=os.getpid(),
    )
    hub, let_go = _borrow(name)
    try:
        launched = _launch(device, settings, hub)
        view = hub.wait_for(name, START_S, lambda: launch.lives(launched.folder))
        if view is None:
            late = f"its engine did not register in {START_S:g} s"
            ended = (
                "its controller ended" if not hub.alive else "it ended" if not launch.lives(launched.folder) else late
            )
            launch.stop(launched.folder)
            raise DeviceError(ended)
    except Exception as error:
        let_go()
        raise DeviceError(f"the engine of device {device.label} did not come up: {error}") from error

    def stop() -> None:
        launch.stop(launched.folder)
        let_go()

    return Engine(device=device.label, view=view, state_dir=state_dir, stop=stop, alive_too=lambda: hub.alive)


def _launch(device: Device, settings: Settings, hub: Hub) -> Launched:
    told = Settings(**{**{name: getattr(settings, name) for name in settings.__slots__}, "connection": hub.connection})
    if device.python is None and not device.setup:
        # What this process can import its engine can import too: plugins beside a notebook, a checkout.
        told.environment["PYTHONPATH"] = python_path()
        return launch.launch(told)
    program = words([device.python or sys.executable, "-m", "ngbkit.device.launch"])
    answer = json.loads(
        device.shell.run(program, given=told.to_json().encode(), timeout_s=2 * START_S).splitlines()[-1]
    )
    if "error" in answer:
        raise DeviceError(answer["error"])
    return Launched(pid=answer["pid"], folder=Path(answer["folder"]))


def _borrow(name: str) -> tuple[Hub, Callable[[], None]]:
    """The controller of this machine's devices, started for the first of them and ended with the last."""
    key = options.state_dir()
    with _lock:
        hub, users = _hubs.get(key, (None, set()))
        if hub is None or not hub.alive:
            if hub is not None:
                hub.stop()
            hub, users = Hub.start(), set()
            _hubs[key] = hub, users
        users.add(name)

    def let_go() -> None:
        with _lock:
            users.discard(name)
            if not users:
                hub.stop()
                if _hubs.get(key, (None,))[0] is hub:
                    del _hubs[key]

    return hub, let_go
