"""Inspection of the driver and the GPU, which `probing` runs in another process."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

from ngbkit.hardware.accelerators import cuda

_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE, also returned if all GPUs are hidden
ROOT = Path("/")


def inspect_gpu(root: Path = ROOT) -> dict[str, Any]:
    """Describe the first GPU as ``gpu``, or report why there is none, as ``no_driver``, ``no_start`` or ``no_gpu``."""
    try:
        library = ctypes.CDLL(cuda.LIBRARY)
    except OSError as error:
        return {"no_driver": str(error)}
    count = ctypes.c_int()
    code = library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count))
    if code not in (0, _NO_DEVICE):
        return {"no_start": cuda.name_error(library, code)}
    if not count.value:
        return {"no_gpu": True}
    try:
        return {"gpu": _describe(cuda.Driver(), root)}
    except RuntimeError as error:
        return {"no_start": str(error)}


def _describe(driver: cuda.Driver, root: Path) -> dict[str, Any]:
    version = read_driver_version(root)
    return {
        "name": driver.name,
        "compute_capability": "{}.{}".format(*driver.compute_capability),
        "memory_bytes": driver.total_memory,
        "l2_bytes": driver.l2_bytes,
        "multiprocessors": driver.multiprocessors,
        "integrated": driver.integrated,
        "bus_id": driver.bus_id,
        "cuda_version": driver.cuda_version,
        **({"driver_version": version} if version else {}),
    }


def read_driver_version(root: Path = ROOT) -> str:
    """Read the version of NVIDIA's kernel module, ``"580.65.06"``; ``""`` if the system does not report it."""
    for file in ("sys/module/nvidia/version", "proc/driver/nvidia/version"):
        try:
            text = (root / file).read_text()
        except OSError:
            continue
        version = re.search(r"\b\d+\.\d+(\.\d+)?\b", text)
        if version:
            return version[0]
    return ""
