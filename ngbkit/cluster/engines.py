"""The engines that this process has started, one a device: kept from run to run, and gone when it ends."""

from __future__ import annotations

import atexit
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from ngbkit import options, registry
from ngbkit.cluster import devices
from ngbkit.cluster.devices import Device
from ngbkit.cluster.engine import Engine
from ngbkit.cluster.launchers.base import NOBODY, Starter

_Key = tuple[str, Path]
_engines: dict[_Key, tuple[Device, Engine]] = {}
# Devices are started side by side, and each but once.
_locks: defaultdict[_Key, threading.Lock] = defaultdict(threading.Lock)


def engine(label: str = "cpu", starter: Starter = NOBODY) -> Engine:
    """The engine of a device: the one that runs, or a new one.

    Parameters
    ----------
    label
        The device, as the devices file calls it.
    starter
        Who waits for it.

    Raises
    ------
    UnknownNameError
        No such device.
    DeviceError
        It did not come up; the message holds its log, or says what to do.
    """
    device = devices.get(label)
    key = label, options.state_dir()
    with _locks[key]:
        known, running = _engines.get(key, (None, None))
        if running is not None and known == device and running.alive():
            return running
        if running is not None:
            del _engines[key]
            running.close()
        start: Callable[[Device, Starter], Engine] = registry.load(registry.LAUNCHERS, device.launch).start
        started = start(device, starter)
        _engines[key] = device, started
        return started


def running() -> dict[str, Engine]:
    """By the label of its device, each engine that was started here and still answers."""
    here = options.state_dir()
    return {
        label: engine for (label, folder), (_, engine) in list(_engines.items()) if folder == here and engine.alive()
    }


def stop(label: str) -> None:
    """End the engine of a device, if it has one; a run on it loses what is in flight, and nothing else."""
    key = label, options.state_dir()
    with _locks[key]:
        _, running = _engines.pop(key, (None, None))
        if running is not None:
            running.close()


@atexit.register
def close() -> None:
    """End every engine that was started here."""
    for key in list(_engines):
        with _locks[key]:
            _, running = _engines.pop(key, (None, None))
            if running is not None:
                running.close()
