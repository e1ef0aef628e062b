"""CPU and memory, of the machine and of one process: read before and while something runs."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from ngbkit.hardware.environment import ROOT, fields, number, read


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


@dataclass(frozen=True, slots=True)
class ProcessCpu:
    """The CPU clock of one process, threads that have ended included: nanoseconds fine and under a microsecond to read.

    Parameters
    ----------
    pid
        Any process of this machine, whoever owns it.
    """

    pid: int

    def seconds(self) -> float:
        """CPU time of all threads so far.

        Raises
        ------
        ProcessLookupError
            There is no such process.
        """
        try:
            # The kernel's clock of a process (CPUCLOCK_SCHED = 2), as clock_getcpuclockid(3) makes it.
            return time.clock_gettime((~self.pid << 3) | 2)
        except OSError:
            pass  # no such process, or no such clock
        try:
            times = psutil.Process(self.pid).cpu_times()
        except psutil.Error:
            raise ProcessLookupError(f"no process {self.pid}: ask for its CPU time while it lives") from None
        return times.user + times.system


def peak_memory_bytes() -> int:
    """The peak resident memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def available_memory_bytes(root: Path = ROOT) -> int:
    """How much memory a new process can take without swapping, in bytes.

    The least of what the machine has and what each control group around this process, of either version, leaves it.
    File cache that the kernel would give up first (the inactive one) does not count as taken.
    """
    machine = fields(root / "proc/meminfo").get("MemAvailable:")
    available = psutil.virtual_memory().available if machine is None else machine * 1024
    return max(0, min([available, *_rooms(root)]))


def out_of_memory_kills(vmstat: Path = Path("/proc/vmstat")) -> int | None:
    """How many processes the kernel has killed for want of memory since it booted; None where it does not tell."""
    return fields(vmstat).get("oom_kill")


def control_groups(controller: str, root: Path = ROOT) -> Iterator[Path]:
    """The folders of the control groups that this process is in, inside out: each of them may set a limit.

    A container often does not see the folder that the kernel names, only its own as the topmost: that one always comes
    last.

    Parameters
    ----------
    controller
        Version 1's name of it, ``memory`` or ``cpu``; version 2 keeps all in one folder.
    """
    for line in read(root / "proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            tops = [root / "sys/fs/cgroup" / name for name in (controller, names)]
        elif not names:
            tops = [root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"]
        else:
            continue
        inner = Path(path.lstrip("/"))
        parts = [part for part in (inner, *inner.parents) if ".." not in part.parts]
        yield from dict.fromkeys(top / part for top in tops for part in parts)


def _rooms(root: Path) -> Iterator[int]:
    """What each control group around this process still lets it have, in bytes."""
    for folder in control_groups("memory", root):
        cache = fields(folder / "memory.stat")
        for limit, used, inactive in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            most, taken = number(folder / limit), number(folder / used)
            if most is not None and taken is not None:
                yield most - taken + cache.get(inactive, 0)
