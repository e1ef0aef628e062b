"""The environment: what a reader of a benchmark would ask."""

from __future__ import annotations

import json
from pathlib import Path

from recorded import record

from ngbkit.hardware import environment

CACHES = {
    f"sys/devices/system/cpu/cpu{core}/cache/index{index}/{name}": value
    for core in range(4)
    for index, level, kind, size, sharing in (
        (0, 1, "Data", "32K", str(core)),
        (1, 1, "Instruction", "64K", str(core)),
        (2, 2, "Unified", "1M", "0-1" if core < 2 else "2-3"),
    )
    for name, value in (("level", level), ("type", kind), ("size", size), ("shared_cpu_list", sharing))
}


def test_the_environment_is_plain_json_with_what_matters() -> None:
    """Chip, cores, memory, versions."""
    about = environment.describe()

    assert about == json.loads(json.dumps(about))
    assert about["chip"]
    assert about["blas"]
    assert 1 <= about["cores_usable"] <= about["threads"]
    assert 1 <= about["numa_nodes"]
    assert about["memory_bytes"] > 1 << 28
    assert {"ngbkit", "numpy"} <= set(about["packages"])


def test_caches_are_told_by_name(tmp_path: Path) -> None:
    """Those of the first core; and the last level's all together, shared ones counted once."""
    record(tmp_path, CACHES)

    assert {"L1d": 32 << 10, "L1i": 64 << 10, "L2": 1 << 20} == environment.caches_bytes(tmp_path)
    assert 2 << 20 == environment.last_level_cache_bytes(tmp_path)


def test_a_server_is_described_from_what_its_kernel_shows(tmp_path: Path) -> None:
    """Microcode, sibling threads, NUMA nodes, and what sets cores aside."""
    cpuinfo = "model name\t: Some Chip\nmicrocode\t: 0x42\nflags\t\t: fpu avx2 hypervisor"
    nodes = {f"sys/devices/system/node/node{number}/cpulist": number for number in range(2)}
    about = {"proc/cpuinfo": cpuinfo, "sys/devices/system/cpu/smt/active": 1}
    command = "root=/dev/sda1 isolcpus=2-3 nohz_full=2-3 quiet nosmt"
    found = environment.describe((), record(tmp_path, {**about, **nodes, "proc/cmdline": command}))

    assert ("Some Chip", "0x42", True, 2, True) == (
        *(found["chip"], found["microcode"], found["smt"]),
        *(found["numa_nodes"], found["hypervisor"]),
    )
    assert ["isolcpus=2-3", "nohz_full=2-3", "nosmt"] == found["kernel_options"]


def test_a_board_that_tells_little_is_described_with_less(tmp_path: Path) -> None:
    """No caches, no microcode, no sibling threads: nothing is made up, and nothing raises."""
    record(tmp_path, {"proc/cpuinfo": "processor\t: 0\nFeatures\t: fp asimd", "proc/device-tree/model": "Some Board\0"})
    found = environment.describe((), tmp_path)

    assert ("Some Board", None, None, 1, {}, [], False) == (
        *(found["chip"], found["microcode"], found["smt"], found["numa_nodes"]),
        *(found["caches_bytes"], found["kernel_options"], found["hypervisor"]),
    )
    assert 0 == environment.last_level_cache_bytes(tmp_path)


def test_a_hypervisor_may_show_elsewhere(tmp_path: Path) -> None:
    """On ARM, no flag of the processor tells of it."""
    record(tmp_path, {"sys/hypervisor/type": "xen"})

    assert environment.virtual_machine(tmp_path)
