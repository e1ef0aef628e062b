"""The look at the driver and the GPU that `probing` sends another process to take."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

from ngbkit.hardware.accelerators import cuda

_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE, which is also the answer where all GPUs are hidden
ROOT = Path("/")


def look(root: Path = ROOT) -> dict[str, Any]:
    """What the first GPU is, as ``gpu``, or why there is none, as ``no_driver``, ``no_start`` or ``no_gpu``.

    Parameters
    ----------
    root
        Where /proc and /sys hang.
    """
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
    version = driver_version(root)
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


def driver_version(root: Path = ROOT) -> str:
    """The version of NVIDIA's kernel module, ``"580.65.06"``, or ``""`` where the system does not tell."""
    for place in ("sys/module/nvidia/version", "proc/driver/nvidia/version"):
        try:
            text = (root / place).read_text()
        except OSError:
            continue
        found = re.search(r"\b\d+\.\d+(\.\d+)?\b", text)
        if found:
            return found[0]
    return ""
