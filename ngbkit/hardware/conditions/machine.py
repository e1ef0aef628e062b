"""State of the machine before a measurement, and warnings about what in it disturbs the measurement."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngbkit.hardware import environment
from ngbkit.hardware.environment import ROOT, read_fields, read_number, read_text
from ngbkit.hardware.resources import read_available_memory_bytes

# Of one core, in percent. The services of an idle machine use less, and it is more than two ticks of an observation.
BUSY_CORE_PERCENT = 15.0
# Of all cores: other work of which every display of a run tells.
BUSY_PERCENT = 10.0
# Percent of all cores' time: equal to the precision that is usually requested.
STEAL_PERCENT = 1.0
# Most chips lower their clocks at 90 to 100 °C, and boost less before that.
HOT_C = 85.0
# The number of busy processes that are named.
_MOST_NAMES = 3


def observe(seconds: float = 0.2, root: Path = ROOT, sleep: Callable[[float], None] = time.sleep) -> dict[str, Any]:
    """Observe the conditions that this machine offers a measurement, as plain JSON; None if not reported.

    Other work is observed for `seconds`; the kernel counts in 10 ms, so under 0.1 s little is seen. ``busiest`` names
    the other processes that used the most CPU time, ``other_busy_percent`` is of all cores without this process,
    ``cores_physical`` counts two threads of a core once, ``core_caches`` lists the usable cores by the last cache that
    they share, and ``cpu_quota_cores`` is None without a quota.
    """
    start = _Work.read(root)
    sleep(seconds)
    return {
        **_read_load(root),
        **_Work.read(root).subtract(start),
        **_read_clocks(root),
        **_read_cores(root),
        "temperature_max_c": _read_temperature(root),
        "on_battery": _read_on_battery(root),
        "memory_available_bytes": read_available_memory_bytes(root),
        "swap_used_bytes": _read_swap_used_bytes(root),
        "cpu_quota_cores": environment.read_cpu_quota_cores(root),
        "virtual_machine": environment.is_virtual_machine(root),
        "transparent_hugepages": _parse_selected(read_text(root / "sys/kernel/mm/transparent_hugepage/enabled")),
    }


def list_warnings(conditions: Mapping[str, Any], threads: int | None = None) -> list[str]:
    """List, with remedies, what of `observe` disturbs a run of that many threads, by default on all usable cores."""
    usable = conditions.get("cores_usable") or 1
    threads = usable if threads is None else threads
    return [
        *warn_of_other_work(conditions),
        *_warn_of_clocks(conditions),
        *_warn_of_too_few_cores(conditions, usable, threads),
    ]


def describe_other_work(conditions: Mapping[str, Any]) -> str:
    """Describe in a phrase what runs beside a measurement, if that is much; else empty."""
    busy, names = conditions.get("other_busy_percent") or 0.0, ", ".join(conditions.get("busiest") or ())
    if busy < BUSY_PERCENT:
        return ""
    return f"{busy:.0f} % of all cores" + (f" ({names})" if names else "")


def warn_of_other_work(conditions: Mapping[str, Any]) -> Iterator[str]:
    """Warn of what runs beside a measurement."""
    busy, cores = conditions.get("other_busy_percent") or 0.0, conditions.get("cores") or 1
    if busy * cores > BUSY_CORE_PERCENT:
        names = ", ".join(conditions.get("busiest") or ()) or "no process that is visible from here"
        yield f"other work uses {busy:.0f} % of all cores ({names}): end it, or wait until it has ended"
    if (steal := conditions.get("steal_percent") or 0.0) > STEAL_PERCENT:
        yield (
            f"the hypervisor gives {steal:.0f} % of this machine's time to others: measure on a machine of your own, "
            "or with more rounds, and use only ratios"
        )
    if pages := conditions.get("swapped_pages"):
        yield f"the machine is swapping ({pages} pages while it was observed): free memory, or measure a smaller batch"


def _warn_of_clocks(conditions: Mapping[str, Any]) -> Iterator[str]:
    """Warn of what changes the cores' clocks."""
    if slow := [governor for governor in conditions.get("governors") or () if governor != "performance"]:
        yield (
            f"the clock governor is {', '.join(slow)}, so that clocks follow the load: set it with "
            "`sudo cpupower frequency-set -g performance` (on a Jetson `sudo jetson_clocks`)"
        )
    if conditions.get("turbo"):
        yield (
            "turbo is on, so that clocks fall as the chip warms: turn it off with "
            "`echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo`, or if there is no such file "
            "`echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost`"
        )
    if (hottest := conditions.get("temperature_max_c") or 0.0) > HOT_C:
        yield f"the chip is at {hottest:.0f} °C and may lower its clocks: let it cool down, or cool it better"
    if conditions.get("on_battery"):
        yield "the machine runs on its battery and may lower its clocks: plug it in"


def _warn_of_too_few_cores(conditions: Mapping[str, Any], usable: int, threads: int) -> Iterator[str]:
    """Warn of threads that share a core."""
    quota = conditions.get("cpu_quota_cores")
    if quota is not None and quota < min(usable, threads):
        fewer = max(1, int(quota))
        other = f", or measure with --threads {fewer}" if fewer < threads else ""
        yield (
            f"a quota limits this container to {quota:g} of its {usable} cores and pauses it when that is used up: "
            f"raise it (`docker run --cpus {min(usable, threads)}`, the limit of a pod){other}"
        )
    physical = conditions.get("cores_physical")
    if threads > usable:
        yield f"{threads} threads share {usable} cores: measure with --threads {usable} or fewer"
    elif physical is not None and threads > physical:
        yield (
            f"{threads} threads share {physical} physical cores, two to a core: measure with --threads {physical}, or "
            "turn SMT off with `echo off | sudo tee /sys/devices/system/cpu/smt/control`"
        )
    caches = conditions.get("core_caches") or []
    largest = max(caches, key=lambda cores: len(parse_core_list(cores)), default="")
    if len(caches) > 1 and threads <= len(parse_core_list(largest)):
        yield (
            f"{threads} threads may be on cores of {len(caches)} caches ({' and '.join(caches)}), between which a "
            f'cache line takes longer: give the device cores of one, cores = "{largest}" in the devices file'
        )


@dataclass(frozen=True, slots=True)
class _Work:
    """Counters so far: ticks of all cores, name and ticks of each process, and swapped pages."""

    total: int
    idle: int
    steal: int
    cores: int
    processes: dict[int, tuple[str, int]]
    swapped: int

    @classmethod
    def read(cls, root: Path) -> _Work:
        lines = [line.split() for line in read_text(root / "proc/stat").splitlines() if line.startswith("cpu")]
        # user nice system idle iowait irq softirq steal; user and nice include the guests' that follow.
        ticks = [int(count) for count in lines[0][1:9]] if lines else [0] * 8
        pages = read_fields(root / "proc/vmstat")
        return cls(
            total=sum(ticks),
            idle=ticks[3] + ticks[4],
            steal=ticks[7] if len(ticks) > 7 else 0,
            cores=len(lines) - 1,
            processes=dict(_read_processes(root)),
            swapped=pages.get("pswpin", 0) + pages.get("pswpout", 0),
        )

    def subtract(self, start: _Work) -> dict[str, Any]:
        """Summarize the work between two readings."""
        total = self.total - start.total
        busy = total - (self.idle - start.idle) - (self.steal - start.steal)
        processes = {
            pid: (name, ticks - start.processes[pid][1])
            for pid, (name, ticks) in self.processes.items()
            if pid in start.processes
        }
        _, this_process = processes.pop(os.getpid(), ("", 0))
        busiest = sorted((work for work in processes.values() if work[1] > 0), key=lambda work: -work[1])
        return {
            "cores": max(self.cores, 1),
            "other_busy_percent": 100 * max(0, busy - this_process) / total if total > 0 else None,
            "busiest": list(dict.fromkeys(name for name, _ in busiest))[:_MOST_NAMES],
            "steal_percent": 100 * (self.steal - start.steal) / total if total > 0 else None,
            "swapped_pages": self.swapped - start.swapped,
        }


def _read_processes(root: Path) -> Iterator[tuple[int, tuple[str, int]]]:
    """Read pid, name and ticks of every process, but no arguments: those may contain secrets."""
    for folder in (root / "proc").glob("[0-9]*"):
        # The name is in brackets, and may contain brackets and spaces itself.
        start, _, rest = read_text(folder / "stat").rpartition(")")
        if values := rest.split():
            yield int(folder.name), (start.partition("(")[2], int(values[11]) + int(values[12]))


def _read_load(root: Path) -> dict[str, Any]:
    words = read_text(root / "proc/loadavg").split()[:3]
    loads = [float(word) for word in words] if len(words) == 3 else [None] * 3
    return dict(zip(("load_1min", "load_5min", "load_15min"), loads, strict=True))


def _read_clocks(root: Path) -> dict[str, Any]:
    cpu = root / "sys/devices/system/cpu"
    governors = {read_text(path) for path in cpu.glob("cpu[0-9]*/cpufreq/scaling_governor")} - {""}
    no_turbo, boost = read_number(cpu / "intel_pstate/no_turbo"), read_number(cpu / "cpufreq/boost")
    frequencies = {
        "clock_now_mhz": read_number(cpu / "cpu0/cpufreq/scaling_cur_freq"),
        "clock_min_mhz": read_number(cpu / "cpu0/cpufreq/scaling_min_freq"),
        "clock_max_mhz": read_number(cpu / "cpu0/cpufreq/scaling_max_freq"),
    }
    clocks = {name: None if khz is None else khz / 1000 for name, khz in frequencies.items()}
    if clocks["clock_now_mhz"] is None:
        clocks["clock_now_mhz"] = _read_cpuinfo_clock(root)
    turbo = not no_turbo if no_turbo is not None else (None if boost is None else bool(boost))
    return {"governors": sorted(governors), "turbo": turbo, **clocks}


def _read_cpuinfo_clock(root: Path) -> float | None:
    lines = read_text(root / "proc/cpuinfo").splitlines()
    return next((float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")), None)


def _read_cores(root: Path) -> dict[str, Any]:
    """Read how many cores this process may use, and how many physical cores those are."""
    cpu = root / "sys/devices/system/cpu"
    usable = parse_core_list(read_text(root / "proc/self/status").partition("Cpus_allowed_list:")[2].partition("\n")[0])
    shared = [read_text(cpu / f"cpu{core}/topology/thread_siblings_list") for core in usable]
    return {
        "smt": environment.read_smt(root),
        "cores_usable": len(usable) or None,
        "cores_physical": len(set(shared)) if shared and all(shared) else None,
        "core_caches": _read_core_caches(cpu, usable),
    }


def _read_core_caches(cpu: Path, usable: list[int]) -> list[str]:
    """Read which usable cores share their last cache, as ranges; none where the kernel does not tell."""
    files = (sorted(cpu.glob(f"cpu{core}/cache/index*/shared_cpu_list")) for core in usable)
    shared = dict.fromkeys(frozenset(parse_core_list(read_text(each[-1]))) for each in files if each)
    groups = [sorted(cores.intersection(usable)) for cores in shared]
    return [environment.format_cores(cores) for cores in groups]


def parse_core_list(text: str) -> list[int]:
    """Parse a list of the kernel's: ``0-2,8`` is 0, 1, 2 and 8."""
    ranges = [part.partition("-") for part in text.strip().split(",") if part]
    return [core for first, _, last in ranges for core in range(int(first), int(last or first) + 1)]


def _read_temperature(root: Path) -> float | None:
    """Read the temperature of the hottest thermal zone, in degrees Celsius."""
    zones = [read_number(path) for path in (root / "sys/class/thermal").glob("thermal_zone*/temp")]
    # A zone whose sensor is off reads 0 or less.
    return max((value / 1000 for value in zones if value is not None and value > 0), default=None)


def _read_on_battery(root: Path) -> bool | None:
    """Read whether a battery is discharging; None without a battery."""
    supplies = list((root / "sys/class/power_supply").glob("*"))
    # Mice and headsets have batteries too, whose scope is "Device".
    batteries = [
        supply
        for supply in supplies
        if read_text(supply / "type") == "Battery" and read_text(supply / "scope") != "Device"
    ]
    return any(read_text(battery / "status") == "Discharging" for battery in batteries) if batteries else None


def _read_swap_used_bytes(root: Path) -> int | None:
    memory = read_fields(root / "proc/meminfo")
    return (memory["SwapTotal:"] - memory["SwapFree:"]) * 1024 if {"SwapTotal:", "SwapFree:"} <= set(memory) else None


def _parse_selected(text: str) -> str | None:
    """Parse the selected word of a kernel setting: ``always [madvise] never`` is ``madvise``."""
    return text.partition("[")[2].partition("]")[0] or None
