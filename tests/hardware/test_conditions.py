"""Conditions: what a measurement is made under, what of it disturbs, and which turns were disturbed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from recorded import record

from ngbkit.hardware import conditions
from ngbkit.hardware.conditions import Interference, Watch
from ngbkit.hardware.resources import ProcessCpu

OWN = os.getpid()
CPU = "sys/devices/system/cpu"


def stat(*cores: tuple[int, int, int]) -> str:
    """/proc/stat of cores that were busy, idle and stolen for so many ticks."""
    rows = [(sum(column) for column in zip(*cores, strict=True)), *cores]
    names = ["cpu", *(f"cpu{number}" for number in range(len(cores)))]
    lines = [
        f"{name} {busy} 0 0 {idle} 0 0 0 {steal} 0 0" for name, (busy, idle, steal) in zip(names, rows, strict=True)
    ]
    return "\n".join([*lines, "intr 1 0 0", "ctxt 5"])


def process(pid: int, name: str, ticks: int) -> dict[str, object]:
    """A process that has computed for so many ticks."""
    return {f"proc/{pid}/stat": f"{pid} ({name}) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0"}


DESKTOP: dict[str, object] = {
    "proc/loadavg": "0.50 0.40 0.30 1/100 4242",
    "proc/cpuinfo": "model name\t: Some Chip\ncpu MHz\t\t: 3100.5\nflags\t\t: fpu avx2",
    "proc/meminfo": "MemAvailable: 5000 kB\nSwapTotal: 900 kB\nSwapFree: 600 kB",
    "proc/vmstat": "pswpin 5\npswpout 7",
    "proc/self/cgroup": "0::/",
    "proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-3",
    f"{CPU}/smt/active": 1,
    **{f"{CPU}/cpu{core}/topology/thread_siblings_list": "0,2" if core in (0, 2) else "1,3" for core in range(4)},
    **{f"{CPU}/cpu{core}/cpufreq/scaling_governor": "powersave" for core in range(4)},
    f"{CPU}/cpu0/cpufreq/scaling_cur_freq": 3200000,
    f"{CPU}/cpu0/cpufreq/scaling_min_freq": 800000,
    f"{CPU}/cpu0/cpufreq/scaling_max_freq": 4200000,
    f"{CPU}/intel_pstate/no_turbo": 0,
    "sys/class/thermal/thermal_zone0/temp": 45000,
    "sys/class/thermal/thermal_zone1/temp": 91000,
    "sys/class/power_supply/AC/type": "Mains",
    "sys/class/power_supply/BAT0/type": "Battery",
    "sys/class/power_supply/BAT0/status": "Discharging",
    "sys/class/power_supply/mouse/type": "Battery",
    "sys/class/power_supply/mouse/scope": "Device",
    "sys/class/power_supply/mouse/status": "Discharging",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
}


def changing(root: Path, later: Mapping[str, object]) -> Callable[[float], None]:
    """A sleep in which files of a tree change."""
    return lambda seconds: (record(root, later), None)[1]


def test_a_look_is_plain_json() -> None:
    """Of this machine, whatever it tells."""
    looked = conditions.look(0.02)

    assert looked == json.loads(json.dumps(looked))
    assert {"load_1min", "other_busy_percent", "governors", "turbo", "virtual_machine"} <= set(looked)
    assert 1 <= looked["cores_usable"] <= looked["cores"]


def test_a_look_tells_what_a_laptop_shows(tmp_path: Path) -> None:
    """Clocks, cores, temperature, power, memory."""
    looked = conditions.look(0, record(tmp_path, {**DESKTOP, "proc/stat": stat(*[(1, 1, 0)] * 4)}))

    assert (0.5, 0.4, 0.3) == (looked["load_1min"], looked["load_5min"], looked["load_15min"])
    assert (["powersave"], True) == (looked["governors"], looked["turbo"])
    assert (3200, 800, 4200) == (looked["clock_now_mhz"], looked["clock_min_mhz"], looked["clock_max_mhz"])
    assert (True, 4, 2) == (looked["smt"], looked["cores_usable"], looked["cores_physical"])
    assert (91.0, True) == (looked["temperature_max_c"], looked["on_battery"])
    assert (5000 * 1024, 300 * 1024) == (looked["memory_available_bytes"], looked["swap_used_bytes"])
    assert (False, "madvise", None) == (
        *(looked["virtual_machine"], looked["transparent_hugepages"]),
        looked["cpu_quota_cores"],
    )


def test_a_look_sees_the_work_of_others(tmp_path: Path) -> None:
    """This process left out; the busiest are named, and none that did nothing; steal is told apart."""
    before = {**process(OWN, "own", 100), **process(7, "idle", 5), **process(8, "a (b) c", 5), **process(9, "hog", 0)}
    after = {**process(OWN, "own", 110), **process(7, "idle", 5), **process(8, "a (b) c", 6), **process(9, "hog", 20)}
    record(tmp_path, {"proc/stat": stat((100, 100, 0), (0, 200, 0)), "proc/vmstat": "pswpin 5\npswpout 7", **before})
    later = {"proc/stat": stat((131, 167, 2), (0, 300, 0)), "proc/vmstat": "pswpin 5\npswpout 9", **after}
    looked = conditions.look(1, tmp_path, changing(tmp_path, later))

    assert (10.5, 1.0, 2) == (looked["other_busy_percent"], looked["steal_percent"], looked["swapped_pages"])
    assert ["hog", "a (b) c"] == looked["busiest"]


def test_a_board_that_tells_nothing_is_looked_at_too(tmp_path: Path) -> None:
    """No clocks, no sibling threads, no battery: each is None, and nothing is warned of."""
    looked = conditions.look(0, record(tmp_path, {"proc/stat": stat((1, 1, 0))}))

    assert {None} == {
        looked[name]
        for name in ("load_1min", "turbo", "clock_now_mhz", "smt", "cores_physical", "temperature_max_c", "on_battery")
    }
    assert [] == conditions.warnings(looked)


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/cpu.max": "150000 100000"}, 1.5),
        ({"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/cpu.max": "max 100000"}, None),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/docker/1f",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": 200000,
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": 100000,
            },
            2.0,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu:/",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": -1,
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": 100000,
            },
            None,
        ),
    ],
)
def test_a_containers_quota_is_told_in_cores(tmp_path: Path, files: dict[str, object], quota: float | None) -> None:
    """From either version of control groups, the tightest around; none where it may use all."""
    assert quota == conditions.look(0, record(tmp_path, files))["cpu_quota_cores"]


def test_a_quiet_machine_is_not_warned_of() -> None:
    """Nor is what it does not tell."""
    looked = {
        "cores": 8,
        "cores_usable": 8,
        "cores_physical": 8,
        "other_busy_percent": 1.0,
        "governors": ["performance"],
    }

    assert [] == conditions.warnings({**looked, "turbo": False, "on_battery": False, "steal_percent": 0.0})
    assert [] == conditions.warnings({})


@pytest.mark.parametrize(
    ("looked", "sentence"),
    [
        (
            {"cores": 4, "other_busy_percent": 25.0, "busiest": ["stress", "java"]},
            "other work takes 25 % of all cores (stress, java): end it, or wait until it has ended",
        ),
        ({"steal_percent": 4.2}, "the hypervisor gives 4 % of this machine's time to others: measure on a machine"),
        ({"swapped_pages": 12}, "the machine is swapping (12 pages while it was looked at): free memory, or"),
        ({"governors": ["powersave"]}, "the clock governor is powersave, so that clocks follow the load: set it with"),
        ({"turbo": True}, "turbo is on, so that clocks fall as the chip warms: turn it off with"),
        ({"temperature_max_c": 91.0}, "the chip is at 91 °C and may lower its clocks: let it cool down"),
        ({"on_battery": True}, "the machine runs on its battery and may lower its clocks: plug it in"),
        ({"cpu_quota_cores": 1.5}, "a quota lets this container have 1.5 of its 4 cores and halts it when that is"),
        (
            {"cores_physical": 2},
            "4 threads share 2 physical cores, two to a core: measure with --threads 2, or turn SMT",
        ),
    ],
)
def test_what_disturbs_is_told_with_what_to_do(looked: dict[str, object], sentence: str) -> None:
    """In one sentence each."""
    told = conditions.warnings({"cores_usable": 4, **looked})

    assert [True] == [one.startswith(sentence) for one in told]


def test_threads_that_have_a_core_each_are_not_warned_of() -> None:
    """Half the threads of a machine with SMT, as many as a quota lets it have; and more than all cores are."""
    looked = {"cores_usable": 4, "cores_physical": 2, "cpu_quota_cores": 2.0}

    assert [] == conditions.warnings(looked, 2)
    assert ["5 threads share 4 cores: measure with --threads 4 or fewer"] == conditions.warnings({"cores_usable": 4}, 5)


class Machine:
    """Two cores in a tree of files on which this process takes turns of recorded length."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, accounts: bool = True) -> None:
        self.root, self.accounts = root, accounts
        self.wall = self.own = self.waited = 0.0
        self.idle = self.stolen = 0
        self.switches = 1
        monkeypatch.setattr(ProcessCpu, "seconds", lambda cpu: self.own)
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
        self.pass_by()
        self.watch = Watch(OWN, root, lambda: self.wall)

    def pass_by(self, **by: float) -> None:
        """Move clocks on: `wall`, `own`, `waited` in seconds, `idle` and `stolen` in ticks, and `switches`."""
        for name, amount in by.items():
            setattr(self, name, getattr(self, name) + amount)
        schedstat = f"1000 {round(self.waited * 1e9)} 3"
        task = f"proc/{OWN}/task/{OWN}"
        told = {f"{task}/schedstat": schedstat, "proc/self/schedstat": schedstat} if self.accounts else {}
        status = f"voluntary_ctxt_switches:\t9\nnonvoluntary_ctxt_switches:\t{self.switches}"
        times = stat((1, self.idle, self.stolen), (1, 0, 0))
        record(self.root, {"proc/stat": times, f"{task}/status": status, **told})

    def turn(self, **by: float) -> Interference:
        """What is seen of a turn in which clocks move on so far."""
        self.watch.mark()
        self.pass_by(**by)
        return self.watch.since()


def test_a_turn_with_the_machine_to_itself_is_not_disturbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own CPU time and the idle time make up all there is."""
    seen = Machine(tmp_path, monkeypatch).turn(wall=1.0, own=1.4, idle=60)

    assert (0.0, 0.0, 0.0, 0.0) == (pytest.approx(seen.waited), seen.crowded, pytest.approx(seen.foreign), seen.steal)
    assert 0.005 == seen.resolution
    assert not seen.disturbed


def test_a_turn_beside_a_busy_process_is_disturbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads waited while something else ran."""
    seen = Machine(tmp_path, monkeypatch).turn(wall=1.0, own=1.3, waited=0.6)

    assert (0.6, 0.35) == (pytest.approx(seen.waited), pytest.approx(seen.foreign))
    assert seen.disturbed


def test_a_busy_process_on_the_other_core_disturbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes memory bandwidth and clocks, though no thread waits."""
    seen = Machine(tmp_path, monkeypatch).turn(wall=1.0, own=1.0)

    assert (0.0, 0.5, True) == (seen.waited, seen.foreign, seen.disturbed)


def test_threads_that_wait_for_one_another_are_not_disturbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four threads on two cores; or two that the scheduler put on one core: said apart."""
    machine = Machine(tmp_path, monkeypatch)
    crowd, stacked = machine.turn(wall=1.0, own=2.0, waited=2.0), machine.turn(wall=1.0, own=1.0, waited=0.8, idle=100)

    assert [(0.0, 2.0, False), (0.0, 0.8, False)] == [
        (pytest.approx(seen.waited), pytest.approx(seen.crowded), seen.disturbed) for seen in (crowd, stacked)
    ]


def test_time_that_the_hypervisor_took_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It disturbs, but no other process had it."""
    seen = Machine(tmp_path, monkeypatch).turn(wall=1.0, own=1.8, stolen=20)

    assert (0.1, 0.0, True) == (seen.steal, pytest.approx(seen.foreign), seen.disturbed)


def test_one_tick_is_not_held_against_a_short_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's counter may have moved by a whole one or by none; what threads waited is exact."""
    machine = Machine(tmp_path, monkeypatch)
    missed, waited = machine.turn(wall=0.01, own=0.01), machine.turn(wall=0.01, own=0.01, waited=0.004)

    assert (0.5, False) == (pytest.approx(missed.foreign), missed.disturbed)
    assert (0.4, True) == (pytest.approx(waited.waited), waited.disturbed)


def test_counters_that_stand_still_tell_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a sandbox; a turn is not marked for them."""
    machine = Machine(tmp_path, monkeypatch)
    monkeypatch.setattr(machine, "pass_by", lambda wall: setattr(machine, "wall", machine.wall + wall))
    record(tmp_path, {"proc/stat": "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0"})
    seen = machine.turn(wall=1.0)

    assert (0.0, 0.0, False) == (seen.foreign, seen.resolution, seen.disturbed)


def test_only_the_cores_of_the_process_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs on others is not in its way."""
    machine = Machine(tmp_path, monkeypatch)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    seen = machine.turn(wall=1.0, own=0.4, idle=60)

    assert (0.0, 0.01) == (pytest.approx(seen.foreign), seen.resolution)


def test_a_kernel_that_does_not_tell_of_waiting_tells_of_preemption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each counts as a slice of the scheduler's, and one a turn is nobody's fault."""
    machine = Machine(tmp_path, monkeypatch, accounts=False)
    once, often = machine.turn(wall=0.1, own=0.1, switches=1), machine.turn(wall=0.1, own=0.1, switches=11)

    assert 0.0 == once.waited
    assert (0.3, True) == (pytest.approx(often.waited), often.disturbed)


def test_a_child_of_this_machine_is_watched() -> None:
    """Its turn is seen through the kernel's own files; once it has ended, nothing is known of it."""
    code = "import sys\nfor line in sys.stdin: print(sum(range(10**6)), flush=True)"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], text=True, **pipes) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        watch = Watch(child.pid)
        watch.mark()
        child.stdin.write("\n")
        child.stdin.flush()
        child.stdout.readline()
        seen = watch.since()
        child.stdin.close()
    gone = watch.since()

    assert 0 <= seen.waited
    assert 0 <= seen.foreign <= 1
    assert (0.0, False) == (gone.waited, gone.disturbed)


def test_no_process_cannot_be_watched() -> None:
    """It says so at once."""
    with pytest.raises(ProcessLookupError, match="no process 4194303"):
        Watch(4194303)


def test_a_look_lasts_as_long_as_asked() -> None:
    """And not a turn longer: the clock that is waited on is the one that is given."""
    asked: list[float] = []
    conditions.look(0.5, sleep=asked.append)

    assert [0.5] == asked
