"""Conditions: observation of a machine, warnings, and disturbed turns."""

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
from ngbkit.hardware.conditions import Interference, InterferenceMonitor
from ngbkit.hardware.resources import ProcessCpu

OWN = os.getpid()
CPU = "sys/devices/system/cpu"


def build_stat(*cores: tuple[int, int, int]) -> str:
    """/proc/stat of cores that were busy, idle and stolen for so many ticks."""
    rows = [(sum(column) for column in zip(*cores, strict=True)), *cores]
    names = ["cpu", *(f"cpu{number}" for number in range(len(cores)))]
    lines = [
        f"{name} {busy} 0 0 {idle} 0 0 0 {steal} 0 0" for name, (busy, idle, steal) in zip(names, rows, strict=True)
    ]
    return "\n".join([*lines, "intr 1 0 0", "ctxt 5"])


def build_process(pid: int, name: str, ticks: int) -> dict[str, object]:
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


def build_sleep(root: Path, later: Mapping[str, object]) -> Callable[[float], None]:
    """A sleep in which files of a tree change."""
    return lambda seconds: (record(root, later), None)[1]


def test_an_observation_is_plain_json() -> None:
    """Of this machine, whatever it reports."""
    observed = conditions.observe(0.02)

    assert observed == json.loads(json.dumps(observed))
    assert {"load_1min", "other_busy_percent", "governors", "turbo", "virtual_machine"} <= set(observed)
    assert 1 <= observed["cores_usable"] <= observed["cores"]


def test_a_laptop_is_observed(tmp_path: Path) -> None:
    """Clocks, cores, temperature, power, memory."""
    observed = conditions.observe(0, record(tmp_path, {**DESKTOP, "proc/stat": build_stat(*[(1, 1, 0)] * 4)}))

    assert (0.5, 0.4, 0.3) == (observed["load_1min"], observed["load_5min"], observed["load_15min"])
    assert (["powersave"], True) == (observed["governors"], observed["turbo"])
    assert (3200, 800, 4200) == (observed["clock_now_mhz"], observed["clock_min_mhz"], observed["clock_max_mhz"])
    assert (True, 4, 2) == (observed["smt"], observed["cores_usable"], observed["cores_physical"])
    assert (91.0, True) == (observed["temperature_max_c"], observed["on_battery"])
    assert (5000 * 1024, 300 * 1024) == (observed["memory_available_bytes"], observed["swap_used_bytes"])
    assert (False, "madvise", None) == (
        *(observed["virtual_machine"], observed["transparent_hugepages"]),
        observed["cpu_quota_cores"],
    )


def test_the_work_of_others_is_observed(tmp_path: Path) -> None:
    """Without this process; the busiest are named, except idle ones; steal is separate."""
    before = {
        **build_process(OWN, "own", 100),
        **build_process(7, "idle", 5),
        **build_process(8, "a (b) c", 5),
        **build_process(9, "hog", 0),
    }
    after = {
        **build_process(OWN, "own", 110),
        **build_process(7, "idle", 5),
        **build_process(8, "a (b) c", 6),
        **build_process(9, "hog", 20),
    }
    record(
        tmp_path, {"proc/stat": build_stat((100, 100, 0), (0, 200, 0)), "proc/vmstat": "pswpin 5\npswpout 7", **before}
    )
    later = {"proc/stat": build_stat((131, 167, 2), (0, 300, 0)), "proc/vmstat": "pswpin 5\npswpout 9", **after}
    observed = conditions.observe(1, tmp_path, build_sleep(tmp_path, later))

    assert (10.5, 1.0, 2) == (observed["other_busy_percent"], observed["steal_percent"], observed["swapped_pages"])
    assert ["hog", "a (b) c"] == observed["busiest"]


def test_a_board_without_reports_is_observed_too(tmp_path: Path) -> None:
    """Missing clocks, sibling threads and battery are None, without a warning."""
    observed = conditions.observe(0, record(tmp_path, {"proc/stat": build_stat((1, 1, 0))}))

    assert {None} == {
        observed[name]
        for name in ("load_1min", "turbo", "clock_now_mhz", "smt", "cores_physical", "temperature_max_c", "on_battery")
    }
    assert [] == conditions.list_warnings(observed)


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
def test_a_containers_quota_is_in_cores(tmp_path: Path, files: dict[str, object], quota: float | None) -> None:
    """From either version of control groups, the tightest; None without a limit."""
    assert quota == conditions.observe(0, record(tmp_path, files))["cpu_quota_cores"]


def test_a_quiet_machine_has_no_warning() -> None:
    """Nor has a missing value."""
    observed = {
        "cores": 8,
        "cores_usable": 8,
        "cores_physical": 8,
        "other_busy_percent": 1.0,
        "governors": ["performance"],
    }

    assert [] == conditions.list_warnings({**observed, "turbo": False, "on_battery": False, "steal_percent": 0.0})
    assert [] == conditions.list_warnings({})


@pytest.mark.parametrize(
    ("observed", "sentence"),
    [
        (
            {"cores": 4, "other_busy_percent": 25.0, "busiest": ["stress", "java"]},
            "other work uses 25 % of all cores (stress, java): end it, or wait until it has ended",
        ),
        ({"steal_percent": 4.2}, "the hypervisor gives 4 % of this machine's time to others: measure on a machine"),
        ({"swapped_pages": 12}, "the machine is swapping (12 pages while it was observed): free memory, or"),
        ({"governors": ["powersave"]}, "the clock governor is powersave, so that clocks follow the load: set it with"),
        ({"turbo": True}, "turbo is on, so that clocks fall as the chip warms: turn it off with"),
        ({"temperature_max_c": 91.0}, "the chip is at 91 °C and may lower its clocks: let it cool down"),
        ({"on_battery": True}, "the machine runs on its battery and may lower its clocks: plug it in"),
        ({"cpu_quota_cores": 1.5}, "a quota limits this container to 1.5 of its 4 cores and pauses it when that is"),
        (
            {"cores_physical": 2},
            "4 threads share 2 physical cores, two to a core: measure with --threads 2, or turn SMT",
        ),
    ],
)
def test_a_warning_has_a_remedy(observed: dict[str, object], sentence: str) -> None:
    """In one sentence each."""
    warnings = conditions.list_warnings({"cores_usable": 4, **observed})

    assert [True] == [warning.startswith(sentence) for warning in warnings]


@pytest.mark.parametrize(
    ("observed", "text"),
    [
        ({"other_busy_percent": 25.0, "busiest": ["stress", "java"]}, "25 % of all cores (stress, java)"),
        ({"other_busy_percent": 10.0}, "10 % of all cores"),
        ({"other_busy_percent": 9.9, "busiest": ["stress"]}, ""),
        ({"other_busy_percent": None}, ""),
        ({}, ""),
    ],
)
def test_much_other_work_is_described(observed: dict[str, object], text: str) -> None:
    """With the names of what does it, where they are known; a machine's own services are not much."""
    assert text == conditions.describe_other_work(observed)


def test_threads_with_a_core_each_have_no_warning() -> None:
    """Half the threads of a machine with SMT, as many as its quota; more threads than cores have one."""
    observed = {"cores_usable": 4, "cores_physical": 2, "cpu_quota_cores": 2.0}

    assert [] == conditions.list_warnings(observed, 2)
    assert ["5 threads share 4 cores: measure with --threads 4 or fewer"] == conditions.list_warnings(
        {"cores_usable": 4}, 5
    )


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


def test_a_turn_with_the_machine_to_itself_is_not_disturbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own CPU time and the idle time add up to the capacity."""
    interference = Machine(tmp_path, monkeypatch).turn(wall=1.0, process_s=1.4, idle=60)

    assert (0.0, 0.0, 0.0, 0.0) == (
        pytest.approx(interference.waited),
        interference.crowded,
        pytest.approx(interference.foreign),
        interference.steal,
    )
    assert 0.005 == interference.resolution
    assert not interference.disturbed


@pytest.mark.parametrize(
    ("cgroup", "folder", "field", "unit"),
    [
        ("0::/job", "sys/fs/cgroup/job", "throttled_usec", 1e6),
        ("4:cpu:/job", "sys/fs/cgroup/cpu/job", "throttled_time", 1e9),
    ],
)
def test_a_turn_that_a_quota_paused_is_disturbed(
    cgroup: str, folder: str, field: str, unit: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By either version of control groups; without a pause it is not."""
    stat = tmp_path / folder / "cpu.stat"
    record(tmp_path, {f"proc/{OWN}/cgroup": cgroup, f"{folder}/cpu.stat": f"nr_throttled 1\n{field} {unit:.0f}"})
    machine = Machine(tmp_path, monkeypatch)
    quiet = machine.turn(wall=1.0, process_s=1.9, idle=10)
    machine.monitor.begin_turn()
    machine.advance(wall=1.0, process_s=1.7, idle=30)
    stat.write_text(f"nr_throttled 2\n{field} {1.2 * unit:.0f}")
    paused = machine.monitor.end_turn()

    assert (0.0, False) == (quiet.throttled, quiet.disturbed)
    assert (pytest.approx(0.1), True) == (paused.throttled, paused.disturbed)


def test_a_turn_knows_how_many_cores_the_process_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own time and that in which it was ready: what the hypervisor took is missing."""
    interference = Machine(tmp_path, monkeypatch).turn(wall=2.0, process_s=2.0, waited=1.0, idle=100)

    assert 1.5 == pytest.approx(interference.active)


def test_a_turn_beside_a_busy_process_is_disturbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads waited while something else ran."""
    interference = Machine(tmp_path, monkeypatch).turn(wall=1.0, process_s=1.3, waited=0.6)

    assert (0.6, 0.35) == (pytest.approx(interference.waited), pytest.approx(interference.foreign))
    assert interference.disturbed


def test_a_busy_process_on_the_other_core_disturbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It uses memory bandwidth and lowers clocks, though no thread waits."""
    interference = Machine(tmp_path, monkeypatch).turn(wall=1.0, process_s=1.0)

    assert (0.0, 0.5, True) == (interference.waited, interference.foreign, interference.disturbed)


def test_threads_that_wait_for_one_another_are_not_disturbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four threads on two cores; or two that the scheduler put on one core: both count as crowded."""
    machine = Machine(tmp_path, monkeypatch)
    crowd, stacked = (
        machine.turn(wall=1.0, process_s=2.0, waited=2.0),
        machine.turn(wall=1.0, process_s=1.0, waited=0.8, idle=100),
    )

    assert [(0.0, 2.0, False), (0.0, 0.8, False)] == [
        (pytest.approx(interference.waited), pytest.approx(interference.crowded), interference.disturbed)
        for interference in (crowd, stacked)
    ]


def test_time_of_the_hypervisor_is_separate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It disturbs, but is not that of another process."""
    interference = Machine(tmp_path, monkeypatch).turn(wall=1.0, process_s=1.8, stolen=20)

    assert (0.1, 0.0, True) == (interference.steal, pytest.approx(interference.foreign), interference.disturbed)


def test_one_tick_does_not_disturb_a_short_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's counter is off by up to a tick; the waiting time is exact."""
    machine = Machine(tmp_path, monkeypatch)
    missed, waited = machine.turn(wall=0.01, process_s=0.01), machine.turn(wall=0.01, process_s=0.01, waited=0.004)

    assert (0.5, False) == (pytest.approx(missed.foreign), missed.disturbed)
    assert (0.4, True) == (pytest.approx(waited.waited), waited.disturbed)


def test_constant_counters_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a sandbox, where no turn is disturbed."""
    machine = Machine(tmp_path, monkeypatch)
    monkeypatch.setattr(machine, "advance", lambda wall: setattr(machine, "wall", machine.wall + wall))
    record(tmp_path, {"proc/stat": "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0"})
    interference = machine.turn(wall=1.0)

    assert (0.0, 0.0, False) == (interference.foreign, interference.resolution, interference.disturbed)


def test_only_the_cores_of_the_process_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work on other cores does not disturb it."""
    machine = Machine(tmp_path, monkeypatch)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    interference = machine.turn(wall=1.0, process_s=0.4, idle=60)

    assert (0.0, 0.01) == (pytest.approx(interference.foreign), interference.resolution)


def test_without_waiting_times_preemptions_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each counts as a slice of the scheduler, except one a turn."""
    machine = Machine(tmp_path, monkeypatch, accounts=False)
    once, often = machine.turn(wall=0.1, process_s=0.1, switches=1), machine.turn(wall=0.1, process_s=0.1, switches=11)

    assert 0.0 == once.waited
    assert (0.3, True) == (pytest.approx(often.waited), often.disturbed)


def test_a_child_of_this_machine_is_monitored() -> None:
    """By the kernel's own files; after its end, all is zero."""
    code = "import sys\nfor line in sys.stdin: print(sum(range(10**6)), flush=True)"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], text=True, **pipes) as child:
        assert child.stdin is not None
        assert child.stdout is not None
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
    assert (0.0, False) == (after_end.waited, after_end.disturbed)


def test_no_process_cannot_be_monitored() -> None:
    """It raises at once."""
    with pytest.raises(ProcessLookupError, match="no process 4194303"):
        InterferenceMonitor(4194303)


def test_an_observation_has_the_requested_duration() -> None:
    """It sleeps once."""
    sleeps: list[float] = []
    conditions.observe(0.5, sleep=sleeps.append)

    assert [0.5] == sleeps
