"""Interference of other work with a turn: how much core time it took from the measured process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ngbkit.hardware.environment import ROOT, read_text
from ngbkit.hardware.resources import ProcessCpu
from ngbkit.limits import find_control_groups

# The kernel reports CPU time to programs in 1/100 s, whatever its own tick is.
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
# The longest wait of a preempted thread, assumed if the kernel reports only how often preemption happened: the usual
# slice of its scheduler.
SLICE_S = 3e-3

# Shares of a turn above which it is contended: well above those of quiet moments on two cores that others used too, and
# far below those beside a process that computes without pause. `tests/bench/truth.py` counts the speed-ups that are
# wrong beside planted interference, and not marked.
WAITED = 0.05
# One process uses 1 / cores: this threshold detects it on up to six cores; on more of them, `WAITED` detects it if it
# is in the way.
FOREIGN = 0.15
# A slice of the hypervisor's time costs a single call, and is a few percent of a turn.
STEAL = 0.02
# A quota that pauses a container does so for tens of milliseconds.
THROTTLED = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Interference:
    """Core time that the measured process lost during a turn; shares of the turn's wall time, or of that x cores."""

    # Time in which threads of the process were ready and other work had their core, over the wall time: above 1 if
    # several threads waited.
    waited: float
    # Time in which they waited for one another instead: the process has more threads than cores, or the scheduler put
    # two of them on one core while another was idle.
    crowded: float
    # CPU time of all other work on the process's cores, over the wall time x cores.
    foreign: float
    # Time in which the hypervisor ran something else on those cores, over the same.
    steal: float
    # Error bound of `foreign` and `steal`, which the kernel counts in ticks of 10 ms: a tick over the same.
    resolution: float
    # Time in which a quota paused the process, over the wall time x cores.
    throttled: float = 0.0
    # Time in which threads of the process had a core or were ready for one that other work had, over the wall time.
    # Steal, a stop of the process and a core less for all of its threads are missing in it.
    active: float = 0.0
    # The share of the cores of its earlier turns that the process may no longer run on: somebody has pinned it. A
    # runtime whose threads wait for each other asleep loses no core time by that, and takes longer.
    withheld: float = 0.0

    @property
    def contended(self) -> bool:
        """True if other work took more of this turn than a tick can account for."""
        return (
            self.waited > WAITED
            or self.throttled > THROTTLED
            or self.withheld > 0
            or self.foreign - self.resolution > FOREIGN
            or self.steal - self.resolution > STEAL
        )


class InterferenceMonitor:
    """Measures the interference of other work with process `pid` in a turn; ProcessLookupError without that process.

    The process must be idle when a turn begins and ends, as a child that waits for its next message is: the kernel
    books a thread's time when the thread releases its core. `clock` returns the wall time, in seconds.
    """

    def __init__(self, pid: int, root: Path = ROOT, clock: Callable[[], float] = time.perf_counter) -> None:
        self._pid, self._clock = pid, clock
        self._cpu = ProcessCpu(pid)
        self._tasks = root / f"proc/{pid}/task"
        self._stat = str(root / "proc/stat")
        quotas = (folder / "cpu.stat" for folder in find_control_groups("cpu", root, pid))
        self._quotas = [str(path) for path in quotas if "throttled_" in read_text(path)]
        # A kernel that does not account for waiting reports zeros, even for this process, which has certainly run.
        counts = read_text(root / "proc/self/schedstat").split()
        self._read_wait_s: Callable[[str], float] = _read_delay_s if counts and counts[0] != "0" else _estimate_delay_s
        self._cpu.read_seconds()
        self._most_cores = 1  # in turns: a runtime may choose its cores while it loads
        self.begin_turn()

    def begin_turn(self) -> None:
        """Read the counters at the beginning of a turn."""
        self._start = self._read()

    def end_turn(self) -> Interference:
        """Compute the interference since the last `begin_turn`; all zero if the process has ended."""
        start, end = self._start, self._read()
        if start is None or end is None:
            return Interference(waited=0.0, crowded=0.0, foreign=0.0, steal=0.0, resolution=1.0)
        self._most_cores = max(self._most_cores, start.cores, end.cores)
        wall = end.wall - start.wall
        capacity = wall * end.cores
        process, idle, steal = end.process - start.process, end.idle - start.idle, end.steal - start.steal
        waited = sum(waited - start.waited.get(task, 0.0) for task, waited in end.waited.items())
        if self._read_wait_s is _estimate_delay_s:
            # The kernel's own threads preempt once a turn, for microseconds only.
            waited -= SLICE_S
        foreign = max(0.0, capacity - idle - process)
        # A thread that waits while a core is idle, or while its siblings occupy all cores, does not wait for other
        # work. Cores that were idle at all may have been idle for a tick longer than counted.
        displaced = min(max(0.0, waited), max(0.0, foreign - (TICK_S * end.counters if idle else 0.0)))
        return Interference(
            waited=displaced / wall,
            crowded=max(0.0, waited - displaced) / wall,
            # A sandbox may show counters that never change: then nothing is known of other work.
            foreign=min(1.0, max(0.0, foreign - steal) / capacity) if end.counters else 0.0,
            steal=min(1.0, steal / capacity),
            resolution=TICK_S * end.counters / capacity,
            throttled=(end.throttled - start.throttled) / capacity,
            # Waiting for a sibling is no core: half of one is missing where somebody pins two threads to one core.
            active=(process + min(max(0.0, waited), foreign)) / wall,
            withheld=1 - end.cores / self._most_cores,
        )

    def _read(self) -> _Reading | None:
        try:
            process, cores = self._cpu.read_seconds(), os.sched_getaffinity(self._pid)
        except ProcessLookupError:
            return None
        waited = dict(self._read_waits())
        idle, steal, counters = self._read_ticks(cores)
        throttled = sum(map(_read_throttled_s, self._quotas))
        return _Reading(
            wall=self._clock(),
            process=process,
            idle=idle * TICK_S,
            steal=steal * TICK_S,
            cores=len(cores),
            counters=counters,
            waited=waited,
            throttled=throttled,
        )

    def _read_waits(self) -> Iterator[tuple[str, float]]:
        """Read how long each thread has waited so far, in seconds."""
        for task in _list_names(self._tasks):
            try:
                yield task, self._read_wait_s(f"{self._tasks}/{task}")
            except OSError:
                continue  # it has just ended

    def _read_ticks(self, usable: set[int]) -> tuple[int, int, int]:
        """Read idle and stolen ticks of the cores that the process may use, and how many counters they add up."""
        lines = [line.split() for line in _read_bytes(self._stat).split(b"\nintr", 1)[0].splitlines()]
        if not any(int(count) for count in lines[0][1:]):
            return 0, 0, 0
        cores = [line for line in lines[1:] if line[0][:3] == b"cpu"]
        # The line of all cores is truncated to whole ticks once, and not once a core.
        counters = lines[:1] if len(cores) <= len(usable) else [core for core in cores if int(core[0][3:]) in usable]
        idle = sum(int(counter[4]) + int(counter[5]) for counter in counters)
        return idle, sum(int(counter[8]) for counter in counters), len(counters)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """Clocks at one moment, in seconds; `idle` and `steal` add up that many counters of the cores."""

    wall: float
    process: float
    idle: float
    steal: float
    cores: int
    counters: int
    waited: dict[str, float]
    throttled: float


def _read_throttled_s(path: str) -> float:
    """Read how long a quota has paused a control group so far: microseconds in version 2, nanoseconds in version 1."""
    words = _read_bytes(path).split()
    fields = dict(zip(words[::2], words[1::2], strict=False))
    if b"throttled_usec" in fields:
        return int(fields[b"throttled_usec"]) * 1e-6
    return int(fields.get(b"throttled_time", 0)) * 1e-9


def _read_delay_s(task: str) -> float:
    """Read how long a thread has been ready to run without a core."""
    return int(_read_bytes(f"{task}/schedstat").split()[1]) * 1e-9


def _estimate_delay_s(task: str) -> float:
    """Estimate the same from the number of preemptions, for a kernel that does not account for waiting."""
    return int(_read_bytes(f"{task}/status").rpartition(b"nonvoluntary_ctxt_switches:")[2]) * SLICE_S


def _list_names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208  a hundred Path objects a reading would cost more than all its rest
    except OSError:
        return []


def _read_bytes(path: str) -> bytes:
    """Read a file four times as fast as `Path.read_bytes`."""
    handle = os.open(path, os.O_RDONLY)
    try:
        return os.read(handle, 1 << 16)
    finally:
        os.close(handle)
