"""CPU and memory, read while something runs."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path

import psutil


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
    """How busy the whole machine was over several stretches of time."""

    busy: float = 0.0
    total: float = 0.0

    def add(self, before: CpuClock, after: CpuClock) -> None:
        self.busy += after.busy - before.busy
        self.total += after.total - before.total

    @property
    def percent(self) -> float | None:
        """Of all cores, 0 to 100; None before the kernel's clock (10 ms a tick) has moved."""
        return 100 * self.busy / self.total if self.total else None


def peak_memory_bytes() -> int:
    """The peak resident memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def out_of_memory_kills(vmstat: Path = Path("/proc/vmstat")) -> int | None:
    """How many processes the kernel has killed for want of memory since it booted; None where it does not tell."""
    try:
        lines = vmstat.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
