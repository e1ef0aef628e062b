"""The engines that this process has started, one per device: shared by its runs, and ended with it."""

from __future__ import annotations

import atexit
import queue
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ngbkit import options, registry
from ngbkit.cluster import devices
from ngbkit.cluster.devices import Device
from ngbkit.cluster.engine import Engine
from ngbkit.cluster.launchers.base import MOST_STARTS, SILENT, Starter

_Key = tuple[str, Path]
_engines: dict[_Key, tuple[Device, Engine]] = {}
# Devices start side by side, and each only once.
_locks: defaultdict[_Key, threading.Lock] = defaultdict(threading.Lock)


def acquire(label: str = "cpu", starter: Starter = SILENT) -> Engine:
    """Return the running engine of a device, or start one."""
    device = devices.get(label)
    key = label, options.get_state_dir()
    with _locks[key]:
        current, engine = _engines.get(key, (None, None))
        if engine is not None and current == device and engine.is_alive():
            return engine
        if engine is not None:
            del _engines[key]
            engine.close()
        start: Callable[[Device, Starter], Engine] = registry.load(registry.LAUNCHERS, device.launch).start
        engine = start(device, starter)
        _engines[key] = device, engine
        return engine


def find_running() -> dict[str, Engine]:
    """Return the live engines of this process, by device label."""
    state_dir = options.get_state_dir()
    return {
        label: engine
        for (label, folder), (_, engine) in list(_engines.items())
        if folder == state_dir and engine.is_alive()
    }


def stop(label: str) -> None:
    """End the engine of a device, if it has one; a run on it loses the trial in flight, and nothing else."""
    _close((label, options.get_state_dir()))


@atexit.register
def close() -> None:
    """End every engine of this process, several at once."""
    keys: queue.SimpleQueue[_Key] = queue.SimpleQueue()
    for key in list(_engines):
        keys.put(key)
    threads = [threading.Thread(target=_close_each, args=(keys,)) for _ in range(min(MOST_STARTS, keys.qsize()) - 1)]
    with suppress(RuntimeError):  # an interpreter that ends starts no thread
        for thread in threads:
            thread.start()
    _close_each(keys)
    for thread in threads:
        if thread.ident is not None:
            thread.join()


def _close_each(keys: queue.SimpleQueue[_Key]) -> None:
    with suppress(queue.Empty):
        while True:
            _close(keys.get_nowait())


def _close(key: _Key) -> None:
    with _locks[key]:
        _, engine = _engines.pop(key, (None, None))
        if engine is not None:
            engine.close()
