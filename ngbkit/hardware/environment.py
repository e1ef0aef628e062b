"""Description of a machine: chip, cores, memory, libraries, governor, load, as plain JSON stored with every run."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import Any

import psutil

from ngbkit.limits import find_control_groups
from ngbkit.registry import find_version

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

# The folder that contains /proc and /sys; tests pass a folder of recorded files.
ROOT = Path("/")

# Options on the kernel's command line that isolate cores or change how they run, and so move a measurement.
_KERNEL_OPTIONS = (
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
    """Describe this machine for a reader of its benchmarks, with the versions of the installed `packages`."""
    memory = psutil.virtual_memory()
    return {
        "host": platform.node(),
        "chip": read_chip(root),
        "microcode": read_microcode(root),
        "architecture": platform.machine(),
        "cores": psutil.cpu_count(logical=False),
        "threads": psutil.cpu_count(),
        "cores_usable": count_usable_cores(),
        "smt": read_smt(root),
        "numa_nodes": len(list((root / "sys/devices/system/node").glob("node[0-9]*"))) or 1,
        "caches_bytes": read_cache_sizes(root),
        "memory_bytes": memory.total,
        "memory_available_bytes": memory.available,
        "system": f"{platform.system()} {platform.release()}",
        "kernel_options": read_kernel_options(root),
        "hypervisor": is_virtual_machine(root),
        "governor": describe_governors(root),
        "load_1min": os.getloadavg()[0],
        "python": platform.python_version(),
        "packages": {package: release for package in packages if (release := find_version(package)) is not None},
        "blas": describe_blas(),
        "ngbkit_commit": find_commit(),
    }


# Differences in these fields make the numbers of two machines, or of two states of one, incomparable.
_IDENTITY = ("chip", "architecture", "threads", "cores_usable", "accelerator")
_MEMORY_SHARE = 0.02
# These packages transport the measurement and do not affect it; their formats are checked elsewhere.
_TRANSPORTS = {"ngbkit", "ipyparallel"}


def find_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """List, in a sentence each, how two descriptions differ in the fields on hardware or libraries that both have."""
    old, new = before.get("releases") or {}, after.get("releases") or {}
    return [
        *find_hardware_differences(before, after),
        *_compare_packages(before, after),
        *(
            f"{line}, for {label}"
            for label in old
            if label in new
            for line in _compare_packages(old[label], new[label])
        ),
    ]


def _compare_packages(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    old, new = before.get("packages") or {}, after.get("packages") or {}
    return [
        f"{name} was {old.get(name, 'not installed')} and is {new.get(name, 'not installed')}"
        for name in sorted({*old, *new} - _TRANSPORTS)
        if old and new and old.get(name) != new.get(name)
    ]


_VARIABLES = "variables."
# These fields of a description cannot make an earlier measurement wrong. Each other one is compared, a new one too.
_IMMATERIAL = (
    # Readings of a moment: each turn is judged by its own.
    *("clock", "load_1min", "memory_available_bytes", "conditions.load_*", "conditions.memory_available_bytes"),
    *("conditions.busiest", "conditions.other_busy_percent", "conditions.steal_percent", "conditions.swap*"),
    *("conditions.clock_now_mhz", "conditions.temperature_max_c", "conditions.warnings", "conditions_after.*"),
    "states.*",
    # Results, of which the age and a later self-check are judged.
    *("peaks.*", "selfcheck.*", "history.*"),
    # Of the installation of a release, not of what it installed.
    *("releases.*.seconds", "releases.*.size_bytes", "releases.*.digest", "releases.*.refusal"),
    # A transport.
    "packages.ipyparallel",
)


def find_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """List, in a sentence each, all that changed on a device which may move a measurement."""
    releases = [device.get("releases") or {} for device in (before, after)]
    # An environment that is not installed now would be installed anew.
    shared = [{label: each[label] for label in releases[0] if label in releases[1]} for each in releases]
    old = dict(_flatten({**before, "releases": shared[0]}))
    new = dict(_flatten({**after, "releases": shared[1]}))
    changed = [
        path
        for path in dict.fromkeys([*old, *new])
        if not any(fnmatchcase(path, pattern) for pattern in _IMMATERIAL)
        and not _is_same(path, old.get(path), new.get(path))
    ]
    variables = [path.removeprefix(_VARIABLES) for path in changed if path.startswith(_VARIABLES)]
    return [
        *(
            f"{_name_field(path)} was {_format(old.get(path))} and is {_format(new.get(path))}"
            for path in changed
            if not path.startswith(_VARIABLES)
        ),
        # Their values may be secret.
        *([f"variables of the environment have changed ({', '.join(variables)})"] if variables else []),
    ]


def _flatten(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields of a description with those inside them, by path; unknown ones are left out."""
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        elif value not in (None, "", []):
            yield f"{prefix}{name}", value


def _is_same(path: str, before: Any, after: Any) -> bool:
    if path == "memory_bytes" and before and after:  # a kernel keeps more or less of it for itself
        return bool(abs(before - after) <= _MEMORY_SHARE * before)
    return bool(before == after)


def _name_field(path: str) -> str:
    for group in ("packages.", "conditions.", "child_settings."):
        path = path.removeprefix(group)
    return path.replace(".", " ", 1)


def _format(value: Any) -> str:
    return "unknown" if value is None else str(value)


def find_hardware_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """List, in a sentence each, how two descriptions differ in hardware, as far as both have it."""
    names = [(device.get("gpu") or {}).get("name") for device in (before, after)]
    differences = [
        f"{name} was {before[name]} and is {after[name]}"
        for name in _IDENTITY
        if name in before and name in after and before[name] != after[name]
    ]
    if None not in names and names[0] != names[1]:
        differences.append(f"the GPU was {names[0]} and is {names[1]}")
    old_bytes, new_bytes = before.get("memory_bytes"), after.get("memory_bytes")
    if old_bytes and new_bytes and abs(old_bytes - new_bytes) > _MEMORY_SHARE * old_bytes:
        differences.append(f"memory was {old_bytes:,} bytes and is {new_bytes:,}")
    return differences


def list_refusals(description: Mapping[str, Any]) -> list[str]:
    """List, in a sentence each, the columns whose release could not be installed on a device."""
    releases = description.get("releases") or {}
    return [f"no result of {label}: {each['refusal']}" for label, each in releases.items() if each.get("refusal")]


def count_usable_cores() -> int:
    """Count the cores that this process may run on."""
    return len(list_usable_cores())


def read_cpu_quota_cores(root: Path = ROOT) -> float | None:
    """Read how many cores' time the control groups around this process allow it; None without a limit."""
    quotas = []
    for folder in find_control_groups("cpu", root):
        quota, period = read_number(folder / "cpu.cfs_quota_us"), read_number(folder / "cpu.cfs_period_us")
        words = read_text(folder / "cpu.max").split()
        if len(words) == 2 and words[0] != "max":
            quota, period = int(words[0]), int(words[1])
        if quota is not None and period and quota > 0:
            quotas.append(quota / period)
    return min(quotas, default=None)


def count_threads(root: Path = ROOT) -> int:
    """Count the threads that this process can run at once: one a core, and within the quota of its container."""
    quota, cores = read_cpu_quota_cores(root), count_usable_cores()
    return cores if quota is None else min(cores, max(1, int(quota)))


def format_cores(cores: Sequence[int]) -> str:
    """Format core numbers as in the devices file: ``"0-3,8"``."""
    runs = [[core for _, core in run] for _, run in groupby(enumerate(sorted(cores)), lambda pair: pair[1] - pair[0])]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def list_usable_cores() -> list[int]:
    """List the cores that this process may run on."""
    return sorted(os.sched_getaffinity(0))


def read_chip(root: Path = ROOT) -> str:
    """Read the processor's name, as exactly as the system reports it."""
    name = _read_cpuinfo(root, "model name", "Model")
    return name or read_text(root / "proc/device-tree/model") or platform.processor() or platform.machine()


def read_cpu_flags(root: Path = ROOT) -> set[str]:
    """Read the processor's feature flags; empty if the system does not list them."""
    return set((_read_cpuinfo(root, "flags", "Features") or "").split())


def is_virtual_machine(root: Path = ROOT) -> bool:
    """Return whether a hypervisor that does not hide itself runs this machine."""
    hints = ("proc/device-tree/hypervisor", "sys/hypervisor/type")
    return "hypervisor" in read_cpu_flags(root) or any((root / hint).exists() for hint in hints)


def read_microcode(root: Path = ROOT) -> str | None:
    """Read the revision of the processor's microcode; None if it has none, or a hypervisor hides it."""
    return _read_cpuinfo(root, "microcode")


def read_smt(root: Path = ROOT) -> bool | None:
    """Read whether each core runs two threads; None if the system does not report it."""
    active = read_number(root / "sys/devices/system/cpu/smt/active")
    return None if active is None else bool(active)


def read_cache_sizes(root: Path = ROOT) -> dict[str, int]:
    """Read the first core's cache sizes in bytes, by name: ``L1d``, ``L1i``, ``L2``, ``L3``; empty if unknown."""
    sizes = {}
    for cache in (root / "sys/devices/system/cpu/cpu0/cache").glob("index[0-9]*"):
        kind = {"Data": "d", "Instruction": "i"}.get(read_text(cache / "type"), "")
        sizes[f"L{read_text(cache / 'level')}{kind}"] = _parse_size(read_text(cache / "size"))
    return dict(sorted(sizes.items()))


def read_last_level_cache_bytes(root: Path = ROOT) -> int:
    """Read the total size of the last-level caches of all chips; 0 if unknown."""
    cores = root / "sys/devices/system/cpu"
    caches = list(cores.glob("cpu0/cache/index[0-9]*"))
    if not caches:
        return 0
    last = max(caches, key=lambda cache: read_text(cache / "level"))
    sharing = {read_text(cache / "shared_cpu_list") for cache in cores.glob(f"cpu[0-9]*/cache/{last.name}")}
    return len(sharing) * _parse_size(read_text(last / "size"))


def read_kernel_options(root: Path = ROOT) -> list[str]:
    """Read the boot options that isolate cores or change how they run: ``isolcpus=2-3``."""
    words = read_text(root / "proc/cmdline").split()
    return [word for word in words if word.partition("=")[0] in _KERNEL_OPTIONS]


def describe_blas() -> str:
    """Describe the BLAS that NumPy was built with: ``scipy-openblas 0.3.31``."""
    import numpy as np

    config: Any = np.show_config(mode="dicts")
    library = config.get("Build Dependencies", {}).get("blas", {})
    return f"{library.get('name', '')} {library.get('version', '')}".strip()


def find_commit() -> str:
    """Find the commit of the checkout that ngbkit runs from, with ``-dirty`` if it is modified; ``""`` if none."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return ""
    try:
        process = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return process.stdout.strip()


def read_text(path: Path) -> str:
    """Read a kernel file, stripped; ``""`` if it is missing or not readable."""
    try:
        return path.read_text(errors="replace").strip("\0 \n")
    except OSError:
        return ""


def describe_governors(root: Path = ROOT) -> str:
    """Describe the clock governors of all cores: ``performance``, or ``performance on 0-3, powersave on 4-7``."""
    cores: dict[str, list[int]] = {}
    for path in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor"):
        cores.setdefault(read_text(path), []).append(int(path.parents[1].name.removeprefix("cpu")))
    if len(cores) < 2:
        return next(iter(cores), "")
    return ", ".join(f"{name} on {format_cores(numbers)}" for name, numbers in sorted(cores.items()))


def read_number(path: Path) -> int | None:
    """Read a kernel file that contains one integer; None if it does not."""
    try:
        return int(read_text(path))
    except ValueError:
        return None


def read_fields(path: Path) -> dict[str, int]:
    """Read a kernel file that has a name and an integer on each line; empty if it is missing."""
    pairs = (line.split() for line in read_text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) > 1 and pair[1].isdecimal()}


def _read_cpuinfo(root: Path, *names: str) -> str | None:
    """Read the value of the first line of /proc/cpuinfo that starts with one of the names."""
    lines = read_text(root / "proc/cpuinfo").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(names)), None)


def _parse_size(text: str) -> int:
    """Parse ``32K`` into bytes; 0 if it is no size."""
    count, unit = text[:-1], text[-1:]
    return int(count) * _UNITS[unit] if count.isdecimal() and unit in _UNITS else 0
