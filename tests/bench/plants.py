"""Interference of known kinds, planted beside a measurement, which switches it on and off."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

# Works in bursts of random lengths around `burst`, with gaps around `gap`, in seconds of the time that it is on: a
# clock that advances in small steps, so that the time of a stop is left out. It dies with its parent.
BURSTS = """
import ctypes, math, random, sys, time
ctypes.CDLL(None).prctl(1, 9)
burst, gap, wave, kind = float(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
chance = random.Random(sys.argv[5])
if kind == "memory":
    import numpy
    source, target = numpy.ones((2, 1 << 21))
last, now = time.monotonic(), 0.0
def advance():
    global last, now
    moment = time.monotonic()
    now += min(0.02, moment - last)
    last = moment
    return now
def compute(until):
    while advance() < until:
        if kind == "memory":
            target[:] = source
def rest(until):
    while advance() < until:
        time.sleep(min(0.005, max(0.0, until - now)))
while True:
    strength = 0.5 - 0.5 * math.cos(2 * math.pi * now / wave) if wave else 1.0
    compute(now + burst * strength * (chance.uniform(0.5, 1.5) if gap else 1.0))
    if gap:
        rest(now + gap * chance.uniform(0.5, 1.5))
"""
Start = Callable[[ExitStack, Sequence[int]], Callable[[bool], None]]
"""Starts interference beside the processes of those ids; returns its switch, which is off at first."""

#: The folder of CPU control groups: version 1, and version 2.
GROUPS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))


@dataclass(frozen=True, kw_only=True)
class Plant:
    """A kind of interference and its strength, the share of the time (of one core, or of all) that it takes."""

    kind: str
    strength: float
    start: Start


def run_bursts(
    burst_s: float,
    gap_s: float,
    *,
    kind: str = "compute",
    wave_s: float = 0.0,
    count: int = 1,
    prefix: Sequence[str] = (),
) -> Start:
    """Work in bursts, in so many processes at once, each started by the words of `prefix`."""

    def start(stack: ExitStack, pids: Sequence[int]) -> Callable[[bool], None]:
        del pids
        words = [*prefix, sys.executable, "-c", BURSTS, str(burst_s), str(gap_s), str(wave_s), kind, "0"]
        processes = [stack.enter_context(kill_at_end(subprocess.Popen(words))) for _ in range(count)]

        def switch(on: bool) -> None:
            for process in processes:
                process.send_signal(signal.SIGCONT if on else signal.SIGSTOP)

        switch(False)
        return switch

    return start


def stop_in_bursts(burst_s: float, gap_s: float) -> Start:
    """Stop the measured processes in bursts, as a hypervisor does that takes all cores."""

    def start(stack: ExitStack, pids: Sequence[int]) -> Callable[[bool], None]:
        on, ended = threading.Event(), threading.Event()

        def work() -> None:
            while not ended.is_set():
                if not on.wait(0.05):
                    continue
                for sign, pause_s in ((signal.SIGSTOP, burst_s), (signal.SIGCONT, gap_s)):
                    for pid in pids:
                        os.kill(pid, sign)
                    ended.wait(pause_s)

        thread = threading.Thread(target=work)
        thread.start()
        stack.callback(thread.join)
        stack.callback(ended.set)
        return lambda state: on.set() if state else on.clear()

    return start


def pin_to_a_core(stack: ExitStack, pids: Sequence[int]) -> Callable[[bool], None]:
    """Pin all threads of the measured processes to one core, as a host does that runs two virtual cores on it."""
    every = os.sched_getaffinity(0)

    def switch(on: bool) -> None:
        for thread in (int(task.name) for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()):
            os.sched_setaffinity(thread, {LAST_CORE} if on else every)

    stack.callback(switch, False)
    return switch


def limit_by_quota(share: float, period_us: int = 100_000) -> Start:
    """Let a quota take that share of all cores' time from the measured processes."""

    def start(stack: ExitStack, pids: Sequence[int]) -> Callable[[bool], None]:
        tree = next(folder for folder in GROUPS if (folder / "cgroup.procs").exists())
        group, quota_us = tree / f"ngbkit-plant-{os.getpid()}", int((1 - share) * period_us * (os.cpu_count() or 1))
        group.mkdir()
        stack.callback(group.rmdir)
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))
            stack.callback((tree / "cgroup.procs").write_text, str(pid))

        def switch(on: bool) -> None:
            if (group / "cpu.cfs_quota_us").exists():
                (group / "cpu.cfs_quota_us").write_text(str(quota_us if on else -1))
            else:
                (group / "cpu.max").write_text(f"{quota_us if on else 'max'} {period_us}")

        return switch

    return start


@contextmanager
def kill_at_end(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _nothing(stack: ExitStack, pids: Sequence[int]) -> Callable[[bool], None]:
    del stack, pids
    return lambda on: None


LAST_CORE = max(os.sched_getaffinity(0))
#: As a hypervisor takes one core: before everything else on it.
FIRST = ("taskset", "-c", str(LAST_CORE), "chrt", "--fifo", "50")
PLANTS: Mapping[str, Plant] = {
    f"{plant.kind} {plant.strength:.0%}": plant
    for plant in (
        Plant(kind="nothing", strength=0.0, start=_nothing),
        Plant(kind="process, 0.5 s bursts", strength=0.1, start=run_bursts(0.5, 4.5)),
        Plant(kind="process, 1 s bursts", strength=0.2, start=run_bursts(1.0, 4.0)),
        Plant(kind="process, 1 s bursts", strength=0.33, start=run_bursts(1.0, 2.0)),
        Plant(kind="process, 0.1 s bursts", strength=0.2, start=run_bursts(0.1, 0.4)),
        Plant(kind="process, 1 ms slices", strength=0.05, start=run_bursts(0.001, 0.019)),
        Plant(kind="process, 2 ms slices", strength=0.2, start=run_bursts(0.002, 0.008)),
        Plant(kind="process", strength=1.0, start=run_bursts(1.0, 0.0)),
        Plant(kind="memory, 1 s bursts", strength=0.2, start=run_bursts(1.0, 4.0, kind="memory")),
        Plant(kind="memory", strength=1.0, start=run_bursts(1.0, 0.0, kind="memory")),
        Plant(kind="all cores, 0.5 s bursts", strength=0.1, start=run_bursts(0.5, 4.5, count=os.cpu_count() or 1)),
        Plant(kind="steal of a core, 50 ms", strength=0.1, start=run_bursts(0.05, 0.45, prefix=FIRST)),
        Plant(kind="steal of a core, 20 ms", strength=0.2, start=run_bursts(0.02, 0.08, prefix=FIRST)),
        Plant(kind="stops, 50 ms", strength=0.1, start=stop_in_bursts(0.05, 0.45)),
        Plant(kind="threads pinned to a core", strength=0.5, start=pin_to_a_core),
        Plant(kind="quota", strength=0.1, start=limit_by_quota(0.1)),
        Plant(kind="slow drift of slices", strength=0.15, start=run_bursts(0.003, 0.007, wave_s=60.0)),
    )
}
