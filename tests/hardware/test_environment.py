"""The environment: a description of the machine for a reader of its benchmarks."""

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


def test_the_environment_is_plain_json() -> None:
    """The environment is plain JSON with chip, cores, memory and versions."""
    machine = environment.describe()

    assert machine == json.loads(json.dumps(machine))
    assert machine["chip"]
    assert machine["blas"]
    assert 1 <= machine["cores_usable"] <= machine["threads"]
    assert 1 <= machine["numa_nodes"]
    assert machine["memory_bytes"] > 1 << 28
    assert {"ngbkit", "numpy"} <= set(machine["packages"])


def test_caches_have_names(tmp_path: Path) -> None:
    """Each cache of the first core has a name, and shared caches count once in the total."""
    record(tmp_path, CACHES)

    assert {"L1d": 32 << 10, "L1i": 64 << 10, "L2": 1 << 20} == environment.read_cache_sizes(tmp_path)
    assert 2 << 20 == environment.read_last_level_cache_bytes(tmp_path)


def test_the_description_of_a_server_comes_from_its_kernel(tmp_path: Path) -> None:
    """The kernel's files give a server's microcode, threads, NUMA nodes and boot options."""
    cpuinfo = "model name\t: Some Chip\nmicrocode\t: 0x42\nflags\t\t: fpu avx2 hypervisor"
    nodes = {f"sys/devices/system/node/node{number}/cpulist": number for number in range(2)}
    files = {"proc/cpuinfo": cpuinfo, "sys/devices/system/cpu/smt/active": 1}
    command = "root=/dev/sda1 isolcpus=2-3 nohz_full=2-3 quiet nosmt"
    machine = environment.describe((), record(tmp_path, {**files, **nodes, "proc/cmdline": command}))

    assert ("Some Chip", "0x42", True, 2, True) == (
        *(machine["chip"], machine["microcode"], machine["smt"]),
        *(machine["numa_nodes"], machine["hypervisor"]),
    )
    assert ["isolcpus=2-3", "nohz_full=2-3", "nosmt"] == machine["kernel_options"]


def test_the_description_of_a_board_has_less(tmp_path: Path) -> None:
    """Missing caches, microcode and sibling threads are empty, and nothing raises."""
    record(tmp_path, {"proc/cpuinfo": "processor\t: 0\nFeatures\t: fp asimd", "proc/device-tree/model": "Some Board\0"})
    machine = environment.describe((), tmp_path)

    assert ("Some Board", None, None, 1, {}, [], False) == (
        *(machine["chip"], machine["microcode"], machine["smt"], machine["numa_nodes"]),
        *(machine["caches_bytes"], machine["kernel_options"], machine["hypervisor"]),
    )
    assert 0 == environment.read_last_level_cache_bytes(tmp_path)


def test_a_hypervisor_may_show_elsewhere(tmp_path: Path) -> None:
    """On ARM, the processor has no flag for it."""
    record(tmp_path, {"sys/hypervisor/type": "xen"})

    assert environment.is_virtual_machine(tmp_path)
