"""Whether this process has an NVIDIA GPU that a library can use, and what it is, asked in processes of their own.

A process that has once asked CUDA anything cannot fork children that use it, and the engine and its fork servers do
little else.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from typing import Any, cast

from ngbkit.errors import DeviceError
from ngbkit.hardware import subprocesses

# The first use of a GPU may load hundreds of megabytes, from a disk that is slow.
TIMEOUT_S = 120.0

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_LOOK = "import json; from ngbkit.hardware.accelerators.looking import look; print(json.dumps(look()))"


def lacks(library: str, program: str) -> str:
    """Why `library` cannot use the GPU of this process, or ``""`` where it can.

    First the driver is looked for, then a GPU that this process may see, and only then is the library asked, each in a
    process of its own, once: what this process has asked before is remembered.

    Parameters
    ----------
    library
        What it is called in the answer.
    program
        Python source that prints why the library cannot use a GPU, or nothing. Where it raises or crashes, that is the
        reason.
    """
    return _lacks(library, program, os.environ.get(_VISIBLE))


def describe() -> dict[str, Any]:
    """The GPU of this process as plain JSON, or ``{}`` where there is none that works.

    ``name``, ``compute_capability``, ``memory_bytes``, ``l2_bytes``, ``multiprocessors``, ``integrated`` (it shares the
    CPU's memory), ``bus_id``, ``cuda_version`` (the newest that the driver serves) and, where the system tells,
    ``driver_version``.
    """
    return dict(_look(os.environ.get(_VISIBLE)).get("gpu", {}))


def compute_capability() -> tuple[int, int]:
    """What the instructions of this process's GPU are known by: ``(8, 7)``.

    A child that has a `ngbkit.hardware.accelerators.cuda.Driver` reads it there, which costs nothing.

    Raises
    ------
    DeviceError
        There is no GPU that works.
    """
    found = describe().get("compute_capability")
    if found is None:
        raise DeviceError(f"there is no compute capability to tell: {lacks('ngbkit', '') or 'no GPU answered'}")
    major, minor = found.split(".")
    return int(major), int(minor)


def forget() -> None:
    """Ask anew from now on, for a driver that was started or a library that was installed since."""
    _lacks.cache_clear()
    _look.cache_clear()


@lru_cache
def _lacks(library: str, program: str, visible: str | None) -> str:
    missing = _missing(library, _look(visible), visible)
    if missing or not program:
        return missing
    try:
        return _ask(program).strip()
    except DeviceError as error:
        return f"{library} is installed and does not load: {error}"


def _missing(library: str, found: dict[str, Any], visible: str | None) -> str:
    """Which of the driver and the GPU is missing, and what to do."""
    if "no_driver" in found:
        return (
            f"there is no NVIDIA driver on this machine ({found['no_driver']}), and {library} needs one and a GPU: "
            "install NVIDIA's driver, or name a device with another `accelerator`"
        )
    if "no_start" in found:
        return f"the NVIDIA driver does not start ({found['no_start']}): see what `nvidia-smi` says, and restart"
    if "no_gpu" in found and visible is not None:
        return (
            f"there is no NVIDIA GPU that this process may see, for {_VISIBLE} is {visible!r}, and {library} needs "
            "one: `nvidia-smi -L` lists those that there are"
        )
    if "no_gpu" in found:
        return (
            f"the NVIDIA driver finds no GPU, and {library} needs one: see what `nvidia-smi` says; a container must be "
            "given its GPUs (`--gpus all`)"
        )
    return ""


@lru_cache
def _look(visible: str | None) -> dict[str, Any]:
    """What the module `looking` finds in a process of its own with that `CUDA_VISIBLE_DEVICES`."""
    del visible  # the process inherits it; here it keeps what is remembered apart
    try:
        found = subprocesses.answer([sys.executable, "-c", _LOOK], environment=os.environ, timeout_s=TIMEOUT_S)
    except DeviceError as error:
        return {"no_start": f"looking for a GPU: {error}"}
    return cast("dict[str, Any]", found)


def _ask(program: str) -> str:
    return subprocesses.run([sys.executable, "-c", program], environment=os.environ, timeout_s=TIMEOUT_S)
