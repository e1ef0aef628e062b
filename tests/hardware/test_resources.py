"""CPU and memory: the available memory, and the CPU time of a process."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest
from recorded import record

from ngbkit.hardware import resources

MEMINFO = "MemTotal:       8000 kB\nMemFree:        1000 kB\nMemAvailable:   5000 kB"


def build_group_v2(path: str, limit: object, used: int, inactive: int) -> dict[str, object]:
    """A control group of version 2."""
    folder = f"sys/fs/cgroup/{path}"
    stat = f"anon 7\ninactive_file {inactive}\nactive_file 3"
    return {f"{folder}/memory.max": limit, f"{folder}/memory.current": used, f"{folder}/memory.stat": stat}


def build_group_v1(path: str, limit: int, used: int, inactive: int) -> dict[str, object]:
    """A control group of version 1."""
    folder = f"sys/fs/cgroup/memory/{path}"
    stat = f"cache 9\ntotal_inactive_file {inactive}"
    return {
        f"{folder}/memory.limit_in_bytes": limit,
        f"{folder}/memory.usage_in_bytes": used,
        f"{folder}/memory.stat": stat,
    }


def test_memory_without_control_groups_is_the_machines(tmp_path: Path) -> None:
    """The available memory is the kernel's in bytes if there is no control group."""
    record(tmp_path, {"proc/meminfo": MEMINFO})

    assert 5000 * 1024 == resources.read_available_memory_bytes(tmp_path)


@pytest.mark.parametrize(
    ("groups", "files", "available"),
    [
        # The inactive file cache is available.
        (
            "0::/user/job",
            build_group_v2("user/job", 1_000_000, 400_000, 100_000) | build_group_v2("user", "max", 900_000, 0),
            700_000,
        ),
        # A parent's limit applies to all its children.
        (
            "0::/user/job",
            build_group_v2("user/job", "max", 400_000, 0) | build_group_v2("user", 950_000, 900_000, 0),
            50_000,
        ),
        (
            "5:cpu,cpuacct:/\n4:memory:/job\n0::/",
            build_group_v1("job", 1_000_000, 400_000, 50_000) | build_group_v1("", 9223372036854771712, 900_000, 0),
            650_000,
        ),
        # In a container, the folder that the kernel names does not exist.
        ("4:memory:/docker/1f", build_group_v1("", 1_000_000, 400_000, 0), 600_000),
        # A group may be over a limit that was lowered.
        ("0::/", build_group_v2("", 1_000, 4_000, 0), 0),
    ],
)
def test_the_tightest_control_group_limits_memory(
    tmp_path: Path, groups: str, files: dict[str, object], available: int
) -> None:
    """The available memory is a group's limit less its use."""
    record(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": groups, **files})

    assert available == resources.read_available_memory_bytes(tmp_path)


def test_memory_of_this_machine_is_known() -> None:
    """The available memory of this machine is between 0 and the total."""
    assert 0 < resources.read_available_memory_bytes() <= psutil.virtual_memory().total


def test_a_process_has_a_clock_of_its_own() -> None:
    """The clock of a process is the CPU time of its threads, equal to its own count."""
    clock = resources.ProcessCpu(os.getpid())
    before = time.process_time()
    read = clock.read_seconds()
    after = time.process_time()

    assert before <= read <= after
    assert 0 <= resources.ProcessCpu(os.getppid()).read_seconds()


def test_the_clock_of_no_process_raises() -> None:
    """The error has the pid."""
    with pytest.raises(ProcessLookupError, match="no process 4194303; read its CPU time while it is alive"):
        resources.ProcessCpu(4194303).read_seconds()


def test_a_process_without_a_kernel_clock_is_read_from_its_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without a kernel clock is read from its coarser tick counts."""

    def refuse(clock: int) -> float:
        raise OSError

    monkeypatch.setattr(time, "clock_gettime", refuse)

    assert resources.ProcessCpu(os.getpid()).read_seconds() <= time.process_time() + 0.02


def test_out_of_memory_kills_are_counted_by_the_kernel(tmp_path: Path) -> None:
    """The count of out-of-memory kills is the kernel's, or None."""
    record(tmp_path, {"vmstat": "nr_free_pages 3\noom_kill 7\nother 1"})

    assert 7 == resources.count_out_of_memory_kills(tmp_path / "vmstat")
    assert None is resources.count_out_of_memory_kills(tmp_path / "missing")


def test_cpu_use_is_a_share_of_all_cores() -> None:
    """The CPU use is the busy time over all time, in percent, over every added interval."""
    use = resources.CpuUse()
    before = use.percent
    use.add(resources.CpuClock(1.0, 10.0), resources.CpuClock(2.0, 12.0))
    use.add(resources.CpuClock(5.0, 20.0), resources.CpuClock(5.0, 22.0))

    assert (None, 25.0) == (before, use.percent)
