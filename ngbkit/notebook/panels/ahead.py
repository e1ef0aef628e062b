"""What is done while somebody still fills in a form, so that nobody waits for it afterwards.

An engine with torch in its fork servers takes seconds to come up, and altair two to be imported: both are needed as
soon as a sweep is run.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from importlib import import_module

from ngbkit import options
from ngbkit.cluster import devices, engines
from ngbkit.cluster.devices import Device
from ngbkit.device.spec import Spec
from ngbkit.sweep.grid import Sweep

# What the first chart needs.
_LIBRARIES = ("altair", "vl_convert")
# A far engine takes somebody's GPU or a batch job: not before it is asked for.
_NEAR = "local"


def load() -> None:
    """Import what the first chart needs; where something lacks, whoever draws it says so."""
    for name in _LIBRARIES:
        with suppress(ImportError):
            import_module(name)


def start(sweep: Sweep) -> list[threading.Thread]:
    """Bring up, in the background, the engines that a sweep will need: of devices on this machine that have none.

    Whatever goes wrong is said by the run that needs the engine.
    """
    known, there = devices.load(), engines.running()
    near = [known[label] for label in sweep.devices if label in known and known[label].launch == _NEAR]
    asked = [(device, sweep) for device in near if device.label not in there]
    threads = [threading.Thread(target=_start, args=one, daemon=True) for one in asked]
    for thread in threads:
        thread.start()
    return threads


def _start(device: Device, sweep: Sweep) -> None:
    with suppress(Exception):
        engine = engines.engine(device.label)
        spec = Spec(
            run_id="",
            device=device.label,
            state_dir=engine.state_dir or options.state_dir(),
            sweep=sweep,
            threads=device.threads,
            accelerator=device.accelerator,
        )
        engine.warm(spec)
