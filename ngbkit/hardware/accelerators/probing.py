"""Probes of the NVIDIA GPU of this process and of the libraries that use it, each in a process of its own.

A process that has once called CUDA cannot fork children that use it, and forking is the main job of the engine and its
fork servers.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from typing import Any, cast

from ngbkit.errors import DeviceError
from ngbkit.hardware import subprocesses
from ngbkit.workloads.subprocesses import SAFE_PATH

# The first use of a GPU may load hundreds of megabytes from a slow disk.
TIMEOUT_S = 120.0

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_INSPECT = "import json; from ngbkit.hardware.accelerators import inspection as i; print(json.dumps(i.inspect_gpu()))"


def find_problem(library: str, program: str) -> str:
    """Find out why `library` cannot use the GPU of this process; ``""`` if it can.

    The order is driver, GPU, library; each probe runs in a process of its own, and this process caches its result.
    `program` is Python source that prints why the library cannot use a GPU, or nothing; if it raises or crashes, that
    is the reason.
    """
    return _find_problem(library, program, os.environ.get(_VISIBLE))


def describe() -> dict[str, Any]:
    """Describe the GPU of this process as plain JSON; ``{}`` if none works.

    ``name``, ``compute_capability``, ``memory_bytes``, ``l2_bytes``, ``multiprocessors``, ``integrated`` (it shares the
    CPU's memory), ``bus_id``, ``cuda_version`` (the newest that the driver supports) and, if the system reports it,
    ``driver_version``.
    """
    return dict(_inspect(os.environ.get(_VISIBLE)).get("gpu", {}))


def read_compute_capability() -> tuple[int, int]:
    """Read the version of the GPU's instruction set, ``(8, 7)``, in another process; DeviceError if no GPU works."""
    capability = describe().get("compute_capability")
    if capability is None:
        raise DeviceError(f"cannot read the compute capability: {find_problem('ngbkit', '') or 'no GPU answered'}")
    major, minor = capability.split(".")
    return int(major), int(minor)


def clear_cache() -> None:
    """Discard cached results, for a driver that was started or a library that was installed since."""
    _find_problem.cache_clear()
    _inspect.cache_clear()


@lru_cache
def _find_problem(library: str, program: str, visible: str | None) -> str:
    problem = _describe_missing(library, _inspect(visible), visible)
    if problem or not program:
        return problem
    try:
        return _run(program).strip()
    except DeviceError as error:
        return f"{library} is installed and does not load: {error}"


def _describe_missing(library: str, inspection: dict[str, Any], visible: str | None) -> str:
    """Describe whether driver or GPU is missing, and what to do."""
    if "no_driver" in inspection:
        return (
            f"no NVIDIA driver on this machine ({inspection['no_driver']}); {library} needs one and a GPU: install "
            "NVIDIA's driver, or use a device with another `accelerator`"
        )
    if "no_start" in inspection:
        return f"the NVIDIA driver does not start ({inspection['no_start']}): run `nvidia-smi`, and restart"
    if "no_gpu" in inspection and visible is not None:
        return (
            f"no NVIDIA GPU is visible to this process, because {_VISIBLE} is {visible!r}; {library} needs one: "
            "`nvidia-smi -L` lists the GPUs"
        )
    if "no_gpu" in inspection:
        return (
            f"the NVIDIA driver finds no GPU, and {library} needs one: run `nvidia-smi`; start a container with its "
            "GPUs (`--gpus all`)"
        )
    return ""


@lru_cache
def _inspect(visible: str | None) -> dict[str, Any]:
    """Run the module `inspection` in a process of its own with that `CUDA_VISIBLE_DEVICES`."""
    del visible  # the process inherits it; here it is only the key of the cache
    try:
        inspection = subprocesses.run_json(
            [sys.executable, "-c", f"{SAFE_PATH}{_INSPECT}"], environment=os.environ, timeout_s=TIMEOUT_S
        )
    except DeviceError as error:
        return {"no_start": f"looking for a GPU: {error}"}
    return cast("dict[str, Any]", inspection)


def _run(program: str) -> str:
    program = f"{SAFE_PATH}{program}"
    return subprocesses.run([sys.executable, "-c", program], environment=os.environ, timeout_s=TIMEOUT_S)
