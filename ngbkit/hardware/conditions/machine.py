"""The machine as a measurement finds it, and what of it disturbs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngbkit.hardware import environment
from ngbkit.hardware.environment import ROOT, fields, number, read
from ngbkit.hardware.resources import available_memory_bytes, control_groups

# Of one core, in percent. The services of an idle machine stay under it, and it is more than two ticks of a look.
BUSY_CORE_PERCENT = 15.0
# Percent of all cores' time: as much as the precision that is usually asked for.
STEAL_PERCENT = 1.0
# Most chips lower their clocks from 90 to 100 °C; on the way there they boost less.
HOT_C = 85.0
# How many names of busy processes are kept.
_NAMED = 3


def look(seconds: float = 0.2, root: Path = ROOT, sleep: Callable[[float], None] = time.sleep) -> dict[str, Any]:
    """What this machine offers a measurement at this moment; whatever it does not tell is None.

    Parameters
    ----------
    seconds
        How long the work of others is watched. The kernel counts in 10 ms: under 0.1 s little is seen.
    root
        Where /proc and /sys hang.
    sleep
        Takes the seconds to wait.

    Returns
    -------
    dict
        Plain JSON. ``load_1min``, ``load_5min`` and ``load_15min``; over those seconds, ``other_busy_percent`` (of all
        cores, this process left out), ``busiest`` (the names of the other processes that took the most CPU time),
        ``steal_percent`` and ``swapped_pages``; ``governors``; ``turbo``; ``clock_now_mhz``, ``clock_min_mhz`` and
        ``clock_max_mhz`` of the first core; ``smt``; ``cores_usable`` and ``cores_physical`` (how many cores those are
        when two threads of one are counted once); ``temperature_max_c``; ``on_battery``; ``memory_available_bytes``;
        ``swap_used_bytes``; ``cpu_quota_cores`` (None where a container may use all); ``virtual_machine``; and
        ``transparent_hugepages``.
    """
    before = _Work.read(root)
    sleep(seconds)
    return {
        **_load(root),
        **_Work.read(root).since(before),
        **_clocks(root),
        **_cores(root),
        "temperature_max_c": _temperature(root),
        "on_battery": _on_battery(root),
        "memory_available_bytes": available_memory_bytes(root),
        "swap_used_bytes": _swap_used_bytes(root),
        "cpu_quota_cores": _cpu_quota_cores(root),
        "virtual_machine": environment.virtual_machine(root),
        "transparent_hugepages": _chosen(read(root / "sys/kernel/mm/transparent_hugepage/enabled")),
    }


def warnings(looked: Mapping[str, Any], threads: int | None = None) -> list[str]:
    """What of it disturbs a measurement: one sentence each, with what to do about it.

    Parameters
    ----------
    looked
        What `look` returned; whatever is absent or None is taken to be fine.
    threads
        How many threads the run computes with; all cores that this process may use where it is None.
    """
    usable = looked.get("cores_usable") or 1
    threads = usable if threads is None else threads
    return [*others(looked), *_clock_moves(looked), *_too_few_cores(looked, usable, threads)]


def others(looked: Mapping[str, Any]) -> Iterator[str]:
    """The sentences of `warnings` about what runs beside a measurement."""
    busy, cores = looked.get("other_busy_percent") or 0.0, looked.get("cores") or 1
    if busy * cores > BUSY_CORE_PERCENT:
        names = ", ".join(looked.get("busiest") or ()) or "no process that can be seen from here"
        yield f"other work takes {busy:.0f} % of all cores ({names}): end it, or wait until it has ended"
    if (steal := looked.get("steal_percent") or 0.0) > STEAL_PERCENT:
        yield (
            f"the hypervisor gives {steal:.0f} % of this machine's time to others: measure on a machine of your own, "
            "or take more rounds and only ratios"
        )
    if pages := looked.get("swapped_pages"):
        yield f"the machine is swapping ({pages} pages while it was looked at): free memory, or measure a smaller batch"


def _clock_moves(looked: Mapping[str, Any]) -> Iterator[str]:
    """Sentences about what moves the cores' clocks."""
    if slow := [governor for governor in looked.get("governors") or () if governor != "performance"]:
        yield (
            f"the clock governor is {', '.join(slow)}, so that clocks follow the load: set it with "
            "`sudo cpupower frequency-set -g performance` (on a Jetson `sudo jetson_clocks`)"
        )
    if looked.get("turbo"):
        yield (
            "turbo is on, so that clocks fall as the chip warms: turn it off with "
            "`echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo`, or where there is no such file "
            "`echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost`"
        )
    if (hottest := looked.get("temperature_max_c") or 0.0) > HOT_C:
        yield f"the chip is at {hottest:.0f} °C and may lower its clocks: let it cool down, or cool it better"
    if looked.get("on_battery"):
        yield "the machine runs on its battery and may lower its clocks: plug it in"


def _too_few_cores(looked: Mapping[str, Any], usable: int, threads: int) -> Iterator[str]:
    """Sentences about threads that have no core to themselves."""
    quota = looked.get("cpu_quota_cores")
    if quota is not None and quota < min(usable, threads):
        fewer = max(1, int(quota))
        yield (
            f"a quota lets this container have {quota:g} of its {usable} cores and halts it when that is used up: "
            f"raise it (`docker run --cpus`), or measure with --threads {fewer}"
        )
    physical = looked.get("cores_physical")
    if threads > usable:
        yield f"{threads} threads share {usable} cores: measure with --threads {usable} or fewer"
    elif physical is not None and threads > physical:
        yield (
            f"{threads} threads share {physical} physical cores, two to a core: measure with --threads {physical}, or "
            "turn SMT off with `echo off | sudo tee /sys/devices/system/cpu/smt/control`"
        )


@dataclass(frozen=True, slots=True)
class _Work:
    """Clocks so far: of all cores in ticks, of each process its name and ticks, and the pages swapped."""

    total: int
    idle: int
    steal: int
    cores: int
    processes: dict[int, tuple[str, int]]
    swapped: int

    @classmethod
    def read(cls, root: Path) -> _Work:
        lines = [line.split() for line in read(root / "proc/stat").splitlines() if line.startswith("cpu")]
        # user nice system idle iowait irq softirq steal; the guests' that follow are counted in user and nice.
        ticks = [int(one) for one in lines[0][1:9]] if lines else [0] * 8
        swapped = fields(root / "proc/vmstat")
        return cls(
            total=sum(ticks),
            idle=ticks[3] + ticks[4],
            steal=ticks[7] if len(ticks) > 7 else 0,
            cores=len(lines) - 1,
            processes=dict(_processes(root)),
            swapped=swapped.get("pswpin", 0) + swapped.get("pswpout", 0),
        )

    def since(self, before: _Work) -> dict[str, Any]:
        """What was done in the time between."""
        total = self.total - before.total
        busy = total - (self.idle - before.idle) - (self.steal - before.steal)
        took = {
            pid: (name, ticks - before.processes[pid][1])
            for pid, (name, ticks) in self.processes.items()
            if pid in before.processes
        }
        _, own = took.pop(os.getpid(), ("", 0))
        busiest = sorted((one for one in took.values() if one[1] > 0), key=lambda one: -one[1])
        return {
            "cores": max(self.cores, 1),
            "other_busy_percent": 100 * max(0, busy - own) / total if total > 0 else None,
            "busiest": [name for name, _ in busiest[:_NAMED]],
            "steal_percent": 100 * (self.steal - before.steal) / total if total > 0 else None,
            "swapped_pages": self.swapped - before.swapped,
        }


def _processes(root: Path) -> Iterator[tuple[int, tuple[str, int]]]:
    """Every process: its number, its name (no argument: they may hold secrets), and the ticks it has run."""
    for folder in (root / "proc").glob("[0-9]*"):
        # The name is in brackets, and may hold brackets and spaces itself.
        start, _, rest = read(folder / "stat").rpartition(")")
        if values := rest.split():
            yield int(folder.name), (start.partition("(")[2], int(values[11]) + int(values[12]))


def _load(root: Path) -> dict[str, Any]:
    loads = read(root / "proc/loadavg").split()[:3]
    found = [float(load) for load in loads] if len(loads) == 3 else [None] * 3
    return dict(zip(("load_1min", "load_5min", "load_15min"), found, strict=True))


def _clocks(root: Path) -> dict[str, Any]:
    cpu = root / "sys/devices/system/cpu"
    governors = {read(path) for path in cpu.glob("cpu[0-9]*/cpufreq/scaling_governor")} - {""}
    no_turbo, boost = number(cpu / "intel_pstate/no_turbo"), number(cpu / "cpufreq/boost")
    frequencies = {
        "clock_now_mhz": number(cpu / "cpu0/cpufreq/scaling_cur_freq"),
        "clock_min_mhz": number(cpu / "cpu0/cpufreq/scaling_min_freq"),
        "clock_max_mhz": number(cpu / "cpu0/cpufreq/scaling_max_freq"),
    }
    told = {name: None if khz is None else khz / 1000 for name, khz in frequencies.items()}
    if told["clock_now_mhz"] is None:
        told["clock_now_mhz"] = _clock_of_cpuinfo(root)
    turbo = not no_turbo if no_turbo is not None else (None if boost is None else bool(boost))
    return {"governors": sorted(governors), "turbo": turbo, **told}


def _clock_of_cpuinfo(root: Path) -> float | None:
    lines = read(root / "proc/cpuinfo").splitlines()
    return next((float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")), None)


def _cores(root: Path) -> dict[str, Any]:
    """How many cores this process may use, and how many of them are no second thread of another."""
    cpu = root / "sys/devices/system/cpu"
    usable = numbers(read(root / "proc/self/status").partition("Cpus_allowed_list:")[2].partition("\n")[0])
    shared = [read(cpu / f"cpu{core}/topology/thread_siblings_list") for core in usable]
    return {
        "smt": environment.smt(root),
        "cores_usable": len(usable) or None,
        "cores_physical": len(set(shared)) if shared and all(shared) else None,
    }


def numbers(listed: str) -> list[int]:
    """The numbers in a list of the kernel's: ``0-2,8`` is 0, 1, 2 and 8."""
    ends = [part.partition("-") for part in listed.strip().split(",") if part]
    return [one for first, _, last in ends for one in range(int(first), int(last or first) + 1)]


def _temperature(root: Path) -> float | None:
    """The hottest thermal zone, in degrees Celsius."""
    found = [number(path) for path in (root / "sys/class/thermal").glob("thermal_zone*/temp")]
    # A zone whose sensor is off answers 0 or less.
    return max((one / 1000 for one in found if one is not None and one > 0), default=None)


def _on_battery(root: Path) -> bool | None:
    """Whether a battery is being emptied; None where there is none."""
    supplies = list((root / "sys/class/power_supply").glob("*"))
    # Mice and headsets have batteries too; theirs say so.
    batteries = [one for one in supplies if read(one / "type") == "Battery" and read(one / "scope") != "Device"]
    return any(read(one / "status") == "Discharging" for one in batteries) if batteries else None


def _swap_used_bytes(root: Path) -> int | None:
    memory = fields(root / "proc/meminfo")
    return (memory["SwapTotal:"] - memory["SwapFree:"]) * 1024 if {"SwapTotal:", "SwapFree:"} <= set(memory) else None


def _cpu_quota_cores(root: Path) -> float | None:
    """How many cores' time the control groups around this process let it have; None where they let it have all."""
    quotas = []
    for folder in control_groups("cpu", root):
        quota, period = number(folder / "cpu.cfs_quota_us"), number(folder / "cpu.cfs_period_us")
        words = read(folder / "cpu.max").split()
        if len(words) == 2 and words[0] != "max":
            quota, period = int(words[0]), int(words[1])
        if quota is not None and period and quota > 0:
            quotas.append(quota / period)
    return min(quotas, default=None)


def _chosen(listed: str) -> str | None:
    """The one in brackets: ``always [madvise] never`` is ``madvise``."""
    return listed.partition("[")[2].partition("]")[0] or None
