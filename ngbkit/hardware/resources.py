"""CPU time and memory of the machine and of one process, read before and during a measurement."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from ngbkit.hardware.environment import ROOT, read_fields, read_number
from ngbkit.limits import find_control_groups


@dataclass(frozen=True, slots=True)
class CpuClock:
    """The machine's CPU time so far, in seconds summed over its cores."""

    busy: float
    total: float

    @classmethod
    def read(cls) -> CpuClock:
        times = psutil.cpu_times()
        total = sum(times[:8]) if len(times) >= 8 else sum(times)
        idle = times.idle + getattr(times, "iowait", 0.0)
        return cls(total - idle, total)


@dataclass(slots=True)
class CpuUse:
    """The load of the whole machine's CPUs over several intervals of time."""

    busy: float = 0.0
    total: float = 0.0

    def add(self, start: CpuClock, end: CpuClock) -> None:
        self.busy += end.busy - start.busy
        self.total += end.total - start.total

    @property
    def percent(self) -> float | None:
        """Of all cores, 0 to 100; None before the kernel's clock (10 ms a tick) has advanced."""
        return 100 * self.busy / self.total if self.total else None


@dataclass(frozen=True, slots=True)
class ProcessCpu:
    """The CPU clock of one process, ended threads included: nanosecond resolution, under a microsecond to read."""

    # Any process of this machine, of any user.
    pid: int

    def read_seconds(self) -> float:
        """Read the CPU time of all threads so far; ProcessLookupError if the process does not exist."""
        try:
            # The kernel's clock of a process (CPUCLOCK_SCHED = 2), as clock_getcpuclockid(3) makes it.
            return time.clock_gettime((~self.pid << 3) | 2)
        except OSError:
            pass  # no such process, or no such clock
        try:
            times = psutil.Process(self.pid).cpu_times()
        except psutil.Error:
            raise ProcessLookupError(f"no process {self.pid}; read its CPU time while it is alive") from None
        return times.user + times.system


def read_peak_memory_bytes() -> int:
    """Read the peak resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def read_process_events() -> dict[str, int]:
    """Read how many of the kernel's interventions this process has had so far, by the name of their variable."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "minor_faults": usage.ru_minflt,
        "major_faults": usage.ru_majflt,
        "involuntary_switches": usage.ru_nivcsw,
    }


def read_resident_memory_bytes() -> int:
    """Read the resident memory of this process."""
    return int(psutil.Process().memory_info().rss)


def read_available_memory_bytes(root: Path = ROOT) -> int:
    """Read how much memory a new process can use without swapping.

    The minimum of the machine's free memory and of what each control group around this process, of either version,
    still allows. Inactive file cache, which the kernel would reclaim first, counts as free.
    """
    kilobytes = read_fields(root / "proc/meminfo").get("MemAvailable:")
    available = psutil.virtual_memory().available if kilobytes is None else kilobytes * 1024
    return max(0, min([available, *_read_group_allowances(root)]))


def count_out_of_memory_kills(vmstat: Path = Path("/proc/vmstat")) -> int | None:
    """Count the processes that the kernel has killed for lack of memory since boot; None if it does not report them."""
    return read_fields(vmstat).get("oom_kill")


def _read_group_allowances(root: Path) -> Iterator[int]:
    """Read how many bytes each control group around this process still allows it."""
    for folder in find_control_groups("memory", root):
        cache = read_fields(folder / "memory.stat")
        for limit_file, used_file, inactive in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit, used = read_number(folder / limit_file), read_number(folder / used_file)
            if limit is not None and used is not None:
                yield limit - used + cache.get(inactive, 0)
