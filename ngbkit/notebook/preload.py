"""Starts engines and imports libraries, which takes seconds, while the user still types, so that no run waits."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from ngbkit import files, options
from ngbkit.runs.recordings import Recordings

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from ngbkit.cluster.devices import Device
    from ngbkit.sweep.grid import Grid

# A remote engine occupies a GPU or a batch job: it starts only with a run.
_LOCAL = "local"
# Most cells compare these.
_COMPILERS = ("identity", "onnxruntime", "openvino")
_CELL = "import torch\nmodel = torch.nn.Identity()\ninput_shape = (1,)"


def begin(shell: InteractiveShell) -> None:
    """Preload what a first run of cells needs, in an idle kernel that is to measure, unless the user forbids it."""
    is_wanted = getattr(shell, "kernel", None) is not None and os.environ.get(options.PRELOAD) != "0"
    if is_wanted and Recordings.from_environment() is None:
        threading.Thread(target=_preload, name="ngbkit-preload", daemon=True).start()


def _preload() -> None:
    with suppress(Exception):  # a run reports its own errors
        from ngbkit.cluster.dispatch import import_results
        from ngbkit.sweep.grid import Grid
        from ngbkit.workloads import cell

        if any(map(files.is_locked, (options.get_state_dir() / options.LAYOUT.cores).glob("*"))):
            return  # imports would disturb a measurement
        for thread in start_engines(Grid(cell.from_source(_CELL), _COMPILERS)):
            thread.join()
        import_results()


def prepare_charts() -> None:
    """Import what the first chart imports, and start the process that draws it."""
    from ngbkit.figures import converter

    for prepare in (partial(import_module, "altair"), converter.start):
        with suppress(ImportError):
            prepare()


def start_engines(sweep: Grid) -> list[threading.Thread]:
    """Start, in the background, the missing engines of a sweep on this machine; the run reports any error of theirs."""
    from ngbkit.cluster import devices, engines

    table, running = devices.load(), engines.find_running()
    missing = [table[label] for label in sweep.devices if label in table and label not in running]
    local = [device for device in missing if device.launch == _LOCAL]
    threads = [
        threading.Thread(target=_start_engine, args=(device, sweep), name=f"ngbkit-preload-{device.label}", daemon=True)
        for device in local
    ]
    for thread in threads:
        thread.start()
    return threads


def _start_engine(device: Device, sweep: Grid) -> None:
    from ngbkit.cluster import engines
    from ngbkit.cluster.dispatch import build_spec

    with suppress(Exception):
        engine = engines.acquire(device.label)
        engine.warm(build_spec(engine, sweep, run_id=""))
