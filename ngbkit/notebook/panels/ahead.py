"""Starts engines and imports libraries while the user still fills in a form, so that Run does not wait for them.

An engine with torch in its fork servers takes seconds to start, and the import of altair takes two.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from importlib import import_module

from ngbkit.cluster import devices, engines
from ngbkit.cluster.devices import Device
from ngbkit.cluster.dispatch import build_spec
from ngbkit.sweep.grid import Grid

# The first chart imports these.
_LIBRARIES = ("altair", "vl_convert")
# A remote engine occupies a GPU or a batch job: it starts only with a run.
_LOCAL = "local"


def import_libraries() -> None:
    """Import the libraries of the first chart; drawing it reports a missing one."""
    for name in _LIBRARIES:
        with suppress(ImportError):
            import_module(name)


def start_engines(sweep: Grid) -> list[threading.Thread]:
    """Start, in the background, the missing engines of a sweep on this machine; the run reports any error of theirs."""
    table, running = devices.load(), engines.find_running()
    missing = [table[label] for label in sweep.devices if label in table and label not in running]
    local = [device for device in missing if device.launch == _LOCAL]
    threads = [threading.Thread(target=_start_engine, args=(device, sweep), daemon=True) for device in local]
    for thread in threads:
        thread.start()
    return threads


def _start_engine(device: Device, sweep: Grid) -> None:
    with suppress(Exception):
        engine = engines.acquire(device.label)
        engine.warm(build_spec(engine, sweep, run_id=""))
