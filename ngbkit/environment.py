"""What the device is: chip, cores, memory, libraries, governor, load. Plain JSON, stored with every run."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

from ngbkit.compilers.base import version

PACKAGES = (
    "ngbkit",
    "numpy",
    "ipyparallel",
    "torch",
    "timm",
    "onnx",
    "onnxscript",
    "onnxruntime",
    "openvino",
    "apache-tvm",
    "apache-tvm-ffi",
    "tensorrt",
)


def describe(packages: Iterable[str] = PACKAGES) -> dict[str, Any]:
    """This machine as a benchmark's reader would want to know it."""
    memory = psutil.virtual_memory()
    return {
        "host": platform.node(),
        "chip": chip(),
        "architecture": platform.machine(),
        "cores": psutil.cpu_count(logical=False),
        "threads": psutil.cpu_count(),
        "cores_usable": cores_usable(),
        "memory_bytes": memory.total,
        "memory_available_bytes": memory.available,
        "system": f"{platform.system()} {platform.release()}",
        "hypervisor": "hypervisor" in cpu_flags(),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "load_1min": os.getloadavg()[0],
        "python": platform.python_version(),
        "packages": {package: found for package in packages if (found := version(package)) is not None},
        "ngbkit_commit": commit(),
    }


def cores_usable() -> int:
    """How many cores this process may run on."""
    return len(os.sched_getaffinity(0))


def chip() -> str:
    """The processor's own name, as exactly as the system knows it."""
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return _read("/proc/device-tree/model").rstrip("\0") or platform.processor() or platform.machine()


def cpu_flags() -> set[str]:
    """The processor's feature flags; empty where the system does not list them."""
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith(("flags", "Features")):
            return set(line.partition(":")[2].split())
    return set()


def commit() -> str:
    """The commit of the checkout that ngbkit runs from, ``-dirty`` where it was changed; else ``""``."""
    root = Path(__file__).parents[1]
    if not (root / ".git").exists():
        return ""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""
