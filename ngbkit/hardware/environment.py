"""What the device is: chip, cores, memory, libraries, governor, load. Plain JSON, stored with every run."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil

from ngbkit.registry import version

PACKAGES = (
    "ngbkit",
    "numpy",
    "ipyparallel",
    "torch",
    "timm",
    "onnx",
    "onnxscript",
    "onnxruntime",
    "onnxruntime-gpu",
    "onnxruntime-ep-nv-tensorrt-rtx-cu13",
    "openvino",
    "apache-tvm",
    "apache-tvm-ffi",
    "xgboost-cpu",
    "tensorrt",
    "iree-base-compiler",
    "executorch",
    "nvidia-ml-py",
)


# Where /proc and /sys hang; a test hangs recorded ones elsewhere.
ROOT = Path("/")

# What sets cores aside from the kernel's other work: the part of its command line that moves a measurement.
_SET_ASIDE = (
    "isolcpus",
    "nohz",
    "nohz_full",
    "rcu_nocbs",
    "irqaffinity",
    "idle",
    "mitigations",
    "intel_pstate",
    "nosmt",
)
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def describe(packages: Iterable[str] = PACKAGES, root: Path = ROOT) -> dict[str, Any]:
    """This machine as a benchmark's reader would want to know it.

    Parameters
    ----------
    packages
        The distributions whose versions are told, where they are installed.
    root
        Where /proc and /sys hang.
    """
    memory = psutil.virtual_memory()
    return {
        "host": platform.node(),
        "chip": chip(root),
        "microcode": microcode(root),
        "architecture": platform.machine(),
        "cores": psutil.cpu_count(logical=False),
        "threads": psutil.cpu_count(),
        "cores_usable": cores_usable(),
        "smt": smt(root),
        "numa_nodes": len(list((root / "sys/devices/system/node").glob("node[0-9]*"))) or 1,
        "caches_bytes": caches_bytes(root),
        "memory_bytes": memory.total,
        "memory_available_bytes": memory.available,
        "system": f"{platform.system()} {platform.release()}",
        "kernel_options": kernel_options(root),
        "hypervisor": virtual_machine(root),
        "governor": read(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "load_1min": os.getloadavg()[0],
        "python": platform.python_version(),
        "packages": {package: found for package in packages if (found := version(package)) is not None},
        "blas": blas(),
        "ngbkit_commit": commit(),
    }


# What makes two machines, or two states of one, unlike to whoever compares their numbers.
_IDENTITY = ("chip", "architecture", "threads", "cores_usable", "accelerator")
_MEMORY_SHARE = 0.02
# They carry the measurement and have no part in what is measured; their formats are checked elsewhere.
_CARRIERS = {"ngbkit", "ipyparallel"}


def unlike(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """In what two descriptions are of different devices, or of one whose libraries have changed: a sentence each.

    What only one of them tells is not compared: an older ngbkit told less.
    """
    found = [
        f"{name} was {one[name]} and is {other[name]}"
        for name in _IDENTITY
        if name in one and name in other and one[name] != other[name]
    ]
    before, after = one.get("memory_bytes"), other.get("memory_bytes")
    if before and after and abs(before - after) > _MEMORY_SHARE * before:
        found.append(f"memory was {before:,} bytes and is {after:,}")
    packages, now = one.get("packages", {}), other.get("packages", {})
    return found + [
        f"{name} was {packages.get(name, 'not there')} and is {now.get(name, 'not there')}"
        for name in sorted({*packages, *now} - _CARRIERS)
        if packages and now and packages.get(name) != now.get(name)
    ]


def cores_usable() -> int:
    """How many cores this process may run on."""
    return len(os.sched_getaffinity(0))


def chip(root: Path = ROOT) -> str:
    """The processor's own name, as exactly as the system knows it."""
    for line in read(root / "proc/cpuinfo").splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return read(root / "proc/device-tree/model") or platform.processor() or platform.machine()


def cpu_flags(root: Path = ROOT) -> set[str]:
    """The processor's feature flags; empty where the system does not list them."""
    for line in read(root / "proc/cpuinfo").splitlines():
        if line.startswith(("flags", "Features")):
            return set(line.partition(":")[2].split())
    return set()


def virtual_machine(root: Path = ROOT) -> bool:
    """Whether a hypervisor runs this machine, as far as it lets that be seen."""
    hints = ("proc/device-tree/hypervisor", "sys/hypervisor/type")
    return "hypervisor" in cpu_flags(root) or any((root / hint).exists() for hint in hints)


def microcode(root: Path = ROOT) -> str | None:
    """The revision of the processor's microcode; None where it has none, or a hypervisor hides it."""
    for line in read(root / "proc/cpuinfo").splitlines():
        if line.startswith("microcode"):
            return line.partition(":")[2].strip()
    return None


def smt(root: Path = ROOT) -> bool | None:
    """Whether cores run two threads each; None where the system does not tell."""
    active = number(root / "sys/devices/system/cpu/smt/active")
    return None if active is None else bool(active)


def caches_bytes(root: Path = ROOT) -> dict[str, int]:
    """The sizes of the first core's caches, by name: ``L1d``, ``L1i``, ``L2``, ``L3``; empty where none is told."""
    found = {}
    for index in (root / "sys/devices/system/cpu/cpu0/cache").glob("index[0-9]*"):
        kind = {"Data": "d", "Instruction": "i"}.get(read(index / "type"), "")
        found[f"L{read(index / 'level')}{kind}"] = _size(read(index / "size"))
    return dict(sorted(found.items()))


def last_level_cache_bytes(root: Path = ROOT) -> int:
    """All caches of the last level together, on all chips; 0 where none is told."""
    cores = root / "sys/devices/system/cpu"
    indexes = list(cores.glob("cpu0/cache/index[0-9]*"))
    if not indexes:
        return 0
    last = max(indexes, key=lambda index: read(index / "level"))
    sharing = {read(one / "shared_cpu_list") for one in cores.glob(f"cpu[0-9]*/cache/{last.name}")}
    return len(sharing) * _size(read(last / "size"))


def kernel_options(root: Path = ROOT) -> list[str]:
    """What the kernel was started with that sets cores aside or changes how they run: ``isolcpus=2-3``."""
    return [word for word in read(root / "proc/cmdline").split() if word.partition("=")[0] in _SET_ASIDE]


def blas() -> str:
    """The BLAS that NumPy was built with: ``scipy-openblas 0.3.31``."""
    import numpy as np

    built: Any = np.show_config(mode="dicts")
    found = built.get("Build Dependencies", {}).get("blas", {})
    return f"{found.get('name', '')} {found.get('version', '')}".strip()


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


def read(path: Path) -> str:
    """A file of the kernel's, stripped; ``""`` where there is none or it must not be read."""
    try:
        return path.read_text(errors="replace").strip("\0 \n")
    except OSError:
        return ""


def number(path: Path) -> int | None:
    """A file of the kernel's that holds one whole number; None where it does not."""
    try:
        return int(read(path))
    except ValueError:
        return None


def fields(path: Path) -> dict[str, int]:
    """A file of the kernel's with a name and a whole number a line; empty where there is none."""
    pairs = (line.split() for line in read(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) > 1 and pair[1].isdecimal()}


def _size(text: str) -> int:
    """``32K`` in bytes; 0 where it is no size."""
    count, unit = text[:-1], text[-1:]
    return int(count) * _UNITS[unit] if count.isdecimal() and unit in _UNITS else 0
