"""Turns that other work disturbs, by the counters of the kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from recorded import build_stat, record

from ngbkit.hardware.conditions import Interference, InterferenceMonitor
from ngbkit.hardware.resources import ProcessCpu

OWN = os.getpid()


class Machine:
    """Two cores in a tree of files on which this process runs turns of recorded length."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, accounts: bool = True) -> None:
        self.root, self.accounts = root, accounts
        self.wall = self.process_s = self.waited = 0.0
        self.idle = self.stolen = 0
        self.switches = 1
        monkeypatch.setattr(ProcessCpu, "read_seconds", lambda cpu: self.process_s)
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
        self.advance()
        self.monitor = InterferenceMonitor(OWN, root, lambda: self.wall)

    def advance(self, **amounts: float) -> None:
        """Advance clocks: `wall`, `process_s`, `waited` in seconds, `idle` and `stolen` in ticks, and `switches`."""
        for name, amount in amounts.items():
            setattr(self, name, getattr(self, name) + amount)
        schedstat = f"1000 {round(self.waited * 1e9)} 3"
        task = f"proc/{OWN}/task/{OWN}"
        accounts = {f"{task}/schedstat": schedstat, "proc/self/schedstat": schedstat} if self.accounts else {}
        status = f"voluntary_ctxt_switches:\t9\nnonvoluntary_ctxt_switches:\t{self.switches}"
        times = build_stat((1, self.idle, self.stolen), (1, 0, 0))
        record(self.root, {"proc/stat": times, f"{task}/status": status, **accounts})

    def turn(self, **amounts: float) -> Interference:
        """Measure a turn in which clocks advance that far."""
        self.monitor.begin_turn()
        self.advance(**amounts)
        return self.monitor.end_turn()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("clocks", "expected"),
    [
        # Its own CPU time and the idle time add up to the capacity.
        (
            {"wall": 1.0, "process_s": 1.4, "idle": 60},
            {"waited": 0.0, "crowded": 0.0, "foreign": 0.0, "steal": 0.0, "resolution": 0.005, "contended": False},
        ),
        # Threads waited while something else ran.
        ({"wall": 1.0, "process_s": 1.3, "waited": 0.6}, {"waited": 0.6, "foreign": 0.35, "contended": True}),
        # A busy process on the other core disturbs, though no thread waits.
        ({"wall": 1.0, "process_s": 1.0}, {"waited": 0.0, "foreign": 0.5, "contended": True}),
        # Threads that wait for one another, because they are many or because two are on one core.
        ({"wall": 1.0, "process_s": 2.0, "waited": 2.0}, {"waited": 0.0, "crowded": 2.0, "contended": False}),
        (
            {"wall": 1.0, "process_s": 1.0, "waited": 0.8, "idle": 100},
            {"waited": 0.0, "crowded": 0.8, "contended": False},
        ),
        # The hypervisor's time is not that of another process.
        ({"wall": 1.0, "process_s": 1.8, "stolen": 20}, {"steal": 0.1, "foreign": 0.0, "contended": True}),
        # A tick, by which the kernel's counter is off, does not disturb a short turn; the waiting time is exact.
        ({"wall": 0.01, "process_s": 0.01}, {"foreign": 0.5, "contended": False}),
        ({"wall": 0.01, "process_s": 0.01, "waited": 0.004}, {"waited": 0.4, "contended": True}),
        # The process had as many cores as its own time and the time in which it was ready tell.
        ({"wall": 2.0, "process_s": 2.0, "waited": 1.0, "idle": 100}, {"active": 1.5}),
        # Two threads that somebody has pinned to one core had one.
        ({"wall": 1.0, "process_s": 1.0, "waited": 1.0, "idle": 100}, {"active": 1.0, "contended": False}),
    ],
)
def test_a_turn_is_contended_if_other_work_had_its_cores(
    machine: Machine, clocks: dict[str, float], expected: dict[str, float]
) -> None:
    """The time that a turn lacks is attributed to other work, to its own threads and to the hypervisor."""
    interference = machine.turn(**clocks)

    assert pytest.approx(expected, rel=1e-9) == {name: getattr(interference, name) for name in expected}


@pytest.mark.parametrize(
    ("cgroup", "folder", "field", "unit"),
    [
        ("0::/job", "sys/fs/cgroup/job", "throttled_usec", 1e6),
        ("4:cpu:/job", "sys/fs/cgroup/cpu/job", "throttled_time", 1e9),
    ],
)
def test_a_turn_that_a_quota_paused_is_contended(
    cgroup: str, folder: str, field: str, unit: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn is contended if a quota of either version of control groups paused it."""
    stat = tmp_path / folder / "cpu.stat"
    record(tmp_path, {f"proc/{OWN}/cgroup": cgroup, f"{folder}/cpu.stat": f"nr_throttled 1\n{field} {unit:.0f}"})
    machine = Machine(tmp_path, monkeypatch)
    quiet = machine.turn(wall=1.0, process_s=1.9, idle=10)
    machine.monitor.begin_turn()
    machine.advance(wall=1.0, process_s=1.7, idle=30)
    stat.write_text(f"nr_throttled 2\n{field} {1.2 * unit:.0f}")
    paused = machine.monitor.end_turn()

    assert (0.0, False) == (quiet.throttled, quiet.contended)
    assert (pytest.approx(0.1), True) == (paused.throttled, paused.contended)


def test_a_process_that_is_pinned_later_is_contended(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with fewer cores than in an earlier turn is, and not one that has had as few since it was loaded."""
    turns = []
    for cores in ({0}, {0, 1}, {0}):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, cores=cores: cores)
        turns.append(machine.turn(wall=1.0, process_s=float(len(cores))))

    assert [(0.0, False), (0.0, False), (0.5, True)] == [(turn.withheld, turn.contended) for turn in turns]


def test_constant_counters_are_ignored(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Constant counters, as in a sandbox, make no turn contended."""
    monkeypatch.setattr(machine, "advance", lambda wall: setattr(machine, "wall", machine.wall + wall))
    record(machine.root, {"proc/stat": "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0"})
    interference = machine.turn(wall=1.0)

    assert (0.0, 0.0, False) == (interference.foreign, interference.resolution, interference.contended)


def test_only_the_cores_of_the_process_count(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work on other cores does not disturb it."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    interference = machine.turn(wall=1.0, process_s=0.4, idle=60)

    assert (0.0, 0.01) == (pytest.approx(interference.foreign), interference.resolution)


def test_without_waiting_times_preemptions_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each counts as a slice of the scheduler, except one a turn."""
    machine = Machine(tmp_path, monkeypatch, accounts=False)
    once, often = machine.turn(wall=0.1, process_s=0.1, switches=1), machine.turn(wall=0.1, process_s=0.1, switches=11)

    assert 0.0 == once.waited
    assert (0.3, True) == (pytest.approx(often.waited), often.contended)


def test_a_child_of_this_machine_is_monitored() -> None:
    """The monitor reads a child from the kernel's files, and zero after its end."""
    code = "import sys\nfor line in sys.stdin: print(sum(range(10**6)), flush=True)"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], text=True, **pipes) as child:
        monitor = InterferenceMonitor(child.pid)
        monitor.begin_turn()
        child.stdin.write("\n")
        child.stdin.flush()
        child.stdout.readline()
        interference = monitor.end_turn()
        child.stdin.close()
    after_end = monitor.end_turn()

    assert 0 <= interference.waited
    assert 0 <= interference.foreign <= 1
    assert (0.0, False) == (after_end.waited, after_end.contended)


def test_no_process_cannot_be_monitored() -> None:
    """A monitor of a missing process raises at once."""
    with pytest.raises(ProcessLookupError, match="no process 4194303"):
        InterferenceMonitor(4194303)
