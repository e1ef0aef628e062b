"""The state of a machine, and warnings with remedies."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from recorded import build_stat, record

from ngbkit.hardware import conditions, environment

OWN = os.getpid()
CPU = "sys/devices/system/cpu"


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
    **{f"{CPU}/cpu{core}/cache/index0/shared_cpu_list": core for core in range(4)},
    **{f"{CPU}/cpu{core}/cache/index3/shared_cpu_list": "0-2,7" if core < 3 else "3-6" for core in range(4)},
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
    """The observation of this machine is plain JSON."""
    observed = conditions.observe(0.02)

    assert observed == json.loads(json.dumps(observed))
    assert {"load_1min", "other_busy_percent", "governors", "turbo", "virtual_machine"} <= set(observed)
    assert 1 <= observed["cores_usable"] <= observed["cores"]


def test_a_laptop_is_observed(tmp_path: Path) -> None:
    """The observation of a laptop has clocks, cores, temperature, power and memory."""
    observed = conditions.observe(0, record(tmp_path, {**DESKTOP, "proc/stat": build_stat(*[(1, 1, 0)] * 4)}))

    assert (0.5, 0.4, 0.3) == (observed["load_1min"], observed["load_5min"], observed["load_15min"])
    assert (["powersave"], True) == (observed["governors"], observed["turbo"])
    assert (3200, 800, 4200) == (observed["clock_now_mhz"], observed["clock_min_mhz"], observed["clock_max_mhz"])
    assert (True, 4, 2) == (observed["smt"], observed["cores_usable"], observed["cores_physical"])
    assert ["0-2", "3"] == observed["core_caches"]
    assert (91.0, True) == (observed["temperature_max_c"], observed["on_battery"])
    assert (5000 * 1024, 300 * 1024) == (observed["memory_available_bytes"], observed["swap_used_bytes"])
    assert (False, "madvise", None) == (
        *(observed["virtual_machine"], observed["transparent_hugepages"]),
        observed["cpu_quota_cores"],
    )


def test_the_work_of_others_is_observed(tmp_path: Path) -> None:
    """The observed work excludes this process and steal, and has each busy process name once."""
    before = {
        **build_process(OWN, "own", 100),
        **build_process(7, "idle", 5),
        **build_process(8, "a (b) c", 5),
        **build_process(9, "hog", 0),
        **build_process(10, "hog", 0),
    }
    after = {
        **build_process(OWN, "own", 110),
        **build_process(7, "idle", 5),
        **build_process(8, "a (b) c", 6),
        **build_process(9, "hog", 20),
        **build_process(10, "hog", 19),
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
    """The quota of a container is the tightest of its control groups in cores, or None."""
    assert quota == conditions.observe(0, record(tmp_path, files))["cpu_quota_cores"]


@pytest.mark.parametrize(("quota", "threads"), [("max", 4), (800_000, 4), (200_000, 2), (150_000, 1), (50_000, 1)])
def test_threads_fit_the_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str | int, threads: int) -> None:
    """Each thread has a core that the quota pays for: a quota that is used up pauses all of them."""
    files = {"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/cpu.max": f"{quota} 100000"}
    monkeypatch.setattr(environment, "count_usable_cores", lambda: 4)

    assert threads == environment.count_threads(record(tmp_path, files))


def test_a_quiet_machine_has_no_warning() -> None:
    """A quiet machine has no warning, and missing values cause none."""
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
    """Each condition has a warning of one sentence."""
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
    """The description of much other work names its processes, if they are known."""
    assert text == conditions.describe_other_work(observed)


def test_threads_with_a_core_each_have_no_warning() -> None:
    """More threads than cores have a warning, and others have none."""
    observed = {"cores_usable": 4, "cores_physical": 2, "cpu_quota_cores": 2.0}

    assert [] == conditions.list_warnings(observed, 2)
    (warning,) = conditions.list_warnings({"cores_usable": 4, "cpu_quota_cores": 0.5}, 1)
    assert warning.endswith("raise it (`docker run --cpus 1`, the limit of a pod)")
    (warning,) = conditions.list_warnings({"cores_usable": 8, "core_caches": ["0-1", "2-7"]}, 4)
    assert warning.startswith("4 threads may be on cores of 2 caches (0-1 and 2-7), between which a cache line takes")
    assert warning.endswith('cores of one, cores = "2-7" in the devices file')
    assert [] == conditions.list_warnings({"cores_usable": 8, "core_caches": ["0-3", "4-7"]})
    assert [] == conditions.list_warnings({"cores_usable": 8, "core_caches": ["0-7"]}, 2)
    assert ["5 threads share 4 cores: measure with --threads 4 or fewer"] == conditions.list_warnings(
        {"cores_usable": 4}, 5
    )


def test_an_observation_has_the_requested_duration() -> None:
    """An observation sleeps once for the requested duration."""
    sleeps: list[float] = []
    conditions.observe(0.5, sleep=sleeps.append)

    assert [0.5] == sleeps
