"""What else had the cores while a child took its turn."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ngbkit.hardware.environment import ROOT, read
from ngbkit.hardware.resources import ProcessCpu

# The kernel counts for programs in 1/100 s, whatever its own tick is.
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
# How long a thread that was put off its core waits for it at most where the kernel tells only how often that happened:
# the usual slice of its scheduler.
SLICE_S = 3e-3

# Shares of a turn above which it is disturbed, from tests/benchmarks/interference.py on two cores that others used too.
# In its quiet moments, 95 % of the turns of 50 ms and more waited under 3.5 %; beside a process that computes without
# end, half of all turns waited over 40 %.
WAITED = 0.05
# In the same moments others took under 7 %. One process takes 1 / cores: it shows here on up to six cores, and on more
# of them where it is in the way, which `WAITED` tells.
FOREIGN = 0.15
# A slice of the hypervisor's time is lost to a single call, and is a few percent of a turn.
STEAL = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Interference:
    """What else had the cores during a turn.

    Parameters
    ----------
    waited
        How long threads of the process were ready to run and had no core because something else had it, over the wall
        time of the turn. Above 1 where several threads waited.
    crowded
        How long they waited for one another instead, over the same: there are more of them than cores, or the scheduler
        had put two on one core while another was idle.
    foreign
        CPU time of everything else on the process's cores, over the wall time of the turn times their number.
    steal
        Time in which the hypervisor ran something else on those cores, over the same.
    resolution
        How far `foreign` and `steal` may be off, since the kernel counts them in ticks of 10 ms: a tick over the same.
    """

    waited: float
    crowded: float
    foreign: float
    steal: float
    resolution: float

    @property
    def disturbed(self) -> bool:
        """Whether a sample of this turn is to be marked; what a tick may have made up is not held against it."""
        return self.waited > WAITED or self.foreign - self.resolution > FOREIGN or self.steal - self.resolution > STEAL


class Watch:
    """Marks the turns of one process in which something else had the cores: `mark` before a turn, `since` after it.

    The process must be idle at both moments, as a child that waits for its next turn is: the kernel books a thread's
    time when it gives its core away.

    Parameters
    ----------
    pid
        The process whose turns are watched.
    root
        Where /proc hangs.
    clock
        Gives the wall time, in seconds.

    Raises
    ------
    ProcessLookupError
        There is no such process.
    """

    def __init__(self, pid: int, root: Path = ROOT, clock: Callable[[], float] = time.perf_counter) -> None:
        self._pid, self._clock = pid, clock
        self._cpu = ProcessCpu(pid)
        self._tasks = root / f"proc/{pid}/task"
        self._stat = str(root / "proc/stat")
        # A kernel that could keep account of waiting and does not answers with zeros, even to one that surely has run.
        counts = read(root / "proc/self/schedstat").split()
        self._waiting: Callable[[str], float] = _delays if counts and counts[0] != "0" else _preemptions
        self._cpu.seconds()
        self.mark()

    def mark(self) -> None:
        """A turn begins."""
        self._before = self._read()

    def since(self) -> Interference:
        """What the turn that began at the last mark had to share; nothing is known of a process that has ended."""
        before, after = self._before, self._read()
        if before is None or after is None:
            return Interference(waited=0.0, crowded=0.0, foreign=0.0, steal=0.0, resolution=1.0)
        wall = after.wall - before.wall
        capacity = wall * after.cores
        own, idle, steal = after.own - before.own, after.idle - before.idle, after.steal - before.steal
        waited = sum(waited - before.waited.get(task, 0.0) for task, waited in after.waited.items())
        if self._waiting is _preemptions:
            # One a turn is what the kernel's own threads take, and that is over in microseconds.
            waited -= SLICE_S
        taken = max(0.0, capacity - idle - own)
        # A thread that waits while a core is idle, or while its siblings have them all, does not wait for others. Cores
        # that were idle at all may have been so for a tick longer than was counted.
        others = min(max(0.0, waited), max(0.0, taken - (TICK_S * after.counters if idle else 0.0)))
        return Interference(
            waited=others / wall,
            crowded=max(0.0, waited - others) / wall,
            # A sandbox may show counters that stand still: nothing is known of others then.
            foreign=min(1.0, max(0.0, taken - steal) / capacity) if after.counters else 0.0,
            steal=min(1.0, steal / capacity),
            resolution=TICK_S * after.counters / capacity,
        )

    def _read(self) -> _Reading | None:
        try:
            own, cores = self._cpu.seconds(), os.sched_getaffinity(self._pid)
        except ProcessLookupError:
            return None
        waited = dict(self._waits())
        idle, steal, counters = self._ticks(cores)
        return _Reading(self._clock(), own, idle * TICK_S, steal * TICK_S, len(cores), counters, waited)

    def _waits(self) -> Iterator[tuple[str, float]]:
        """How long each thread has waited so far, in seconds."""
        for task in _names(self._tasks):
            try:
                yield task, self._waiting(f"{self._tasks}/{task}")
            except OSError:
                continue  # it has just ended

    def _ticks(self, usable: set[int]) -> tuple[int, int, int]:
        """Idle and stolen ticks of the cores that the process may use, and of how many counters they are sums."""
        lines = [line.split() for line in _bytes(self._stat).split(b"\nintr", 1)[0].splitlines()]
        if not any(int(count) for count in lines[0][1:]):
            return 0, 0, 0
        cores = [line for line in lines[1:] if line[0][:3] == b"cpu"]
        # The line of all cores is cut to whole ticks once, and not once a core.
        counted = lines[:1] if len(cores) <= len(usable) else [one for one in cores if int(one[0][3:]) in usable]
        idle = sum(int(line[4]) + int(line[5]) for line in counted)
        return idle, sum(int(line[8]) for line in counted), len(counted)


@dataclass(frozen=True, slots=True)
class _Reading:
    """Clocks at one moment, in seconds; `idle` and `steal` are sums over the cores, each of so many counters."""

    wall: float
    own: float
    idle: float
    steal: float
    cores: int
    counters: int
    waited: dict[str, float]


def _delays(task: str) -> float:
    """How long a thread has been ready to run and had no core, in seconds."""
    return int(_bytes(f"{task}/schedstat").split()[1]) * 1e-9


def _preemptions(task: str) -> float:
    """The same where the kernel keeps no account of it: so many slices as the thread was put off its core."""
    return int(_bytes(f"{task}/status").rpartition(b"nonvoluntary_ctxt_switches:")[2]) * SLICE_S


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208  a hundred Path objects a mark would cost more than the rest of it
    except OSError:
        return []


def _bytes(path: str) -> bytes:
    """A file, read four times as fast as by `Path.read_bytes`."""
    handle = os.open(path, os.O_RDONLY)
    try:
        return os.read(handle, 1 << 16)
    finally:
        os.close(handle)
