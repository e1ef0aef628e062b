"""Environment variables of every child, so that all compilers run under the same conditions."""

from __future__ import annotations

import ctypes.util
import os
from collections.abc import Mapping
from pathlib import Path

from ngbkit.errors import UnsupportedError
from ngbkit.sweep.memory import HUGE, KEPT, LIBRARIES, SYSTEM, Memory

SPIN_COUNT = "3000"
TVM_SPIN_COUNT = "30"
# No block is mapped for itself, and the heap never shrinks: mallopt(3). One arena, since others map blocks above 64 MB.
KEEPING = {
    **{"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 62)},
    **{"MALLOC_TOP_PAD_": str(1 << 20), "MALLOC_ARENA_MAX": "1"},
}
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_PACKAGES = {"jemalloc": "libjemalloc2", "tcmalloc": "libtcmalloc-minimal4"}  # of Debian
_FIRST_HUGE, _HAS_VERSION = (2, 35), "CS_GNU_LIBC_VERSION" in getattr(os, "confstr_names", {})
_TUNABLES, _PRELOAD = "GLIBC_TUNABLES", "LD_PRELOAD"


def build_child_settings(
    threads: int, environment: Mapping[str, str] = os.environ, memory: str = KEPT
) -> dict[str, str]:
    """Build the variables that OpenMP, BLAS and glibc read when they are loaded, so that fork servers must set them.

    A user's own OpenMP wait policy stays. Without one, libgomp spins 300,000 times before a thread sleeps, and if
    anything else runs on its cores, the spinning uses up the time of the thread that it waits for. With 3,000 on two
    quiet cores, resnet18, efficientnet_b1 and deit3_small take 1.04, 1.03 and 1.01 times as long as with that default;
    with 1,000 it is 1.16, 1.28 and 1.05. Beside a busy process a block of two convolutions (0.8 ms) takes 3.3 ms; with
    10,000 it takes 0.8 or 7.5 ms at random. `python tests/bench/vendors.py precautions` measures what the default does.

    TVM's own threads spin 300,000 times after each call, which costs the next turn 150 ms of a core (resnet18, two
    threads: half of any pause of 300 ms). With 30 they spin for 0.1 ms, and a call takes as long as before.
    """
    spin_count = environment.get("TVM_THREAD_POOL_SPIN_COUNT", TVM_SPIN_COUNT)
    settings = {"OMP_NUM_THREADS": str(threads), "TVM_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": "1"}
    policy = {name: environment[name] for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT") if name in environment}
    settings["TVM_THREAD_POOL_SPIN_COUNT"] = spin_count
    return {**settings, **(policy or {"GOMP_SPINCOUNT": SPIN_COUNT}), **_build_memory_settings(memory, environment)}


def _build_memory_settings(memory: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Build the variables of a memory: the user's own stay for `SYSTEM`.

    glibc maps each block above a threshold for itself and gives it back once it is freed, and every page of the next
    one costs a fault: of 1 µs or more on a virtual machine, where it is most of the time of eager networks with large
    tensors. The threshold follows the largest block that a process has ever freed, up to 32 MB. The arenas of runtimes
    keep what they have, so that only the baseline would pay.
    """
    if memory == SYSTEM:
        return {}
    if memory in LIBRARIES:
        return {_PRELOAD: " ".join(filter(None, [_find_library(memory), environment.get(_PRELOAD, "")]))}
    if memory == HUGE:
        others = environment.get(_TUNABLES, "")
        return {**KEEPING, _TUNABLES: ":".join(filter(None, [others, "glibc.malloc.hugetlb=1"]))}
    return KEEPING


def find_memory_refusal(memory: str) -> str:
    """Find why a column cannot have a memory here, with the remedy; empty if it can."""
    if memory in LIBRARIES and not _find_library(memory):
        return f"memory {memory} needs its library: install {_PACKAGES[memory]} by the system's package manager"
    if memory == HUGE and (_read_glibc() < _FIRST_HUGE or "[never]" in _read_huge_pages()):
        return "memory huge needs glibc 2.35 and transparent huge pages of the kernel, and one is missing: choose kept"
    return ""


def observe_memory(chosen: Memory) -> Memory:
    """Observe the memory of this process; UnsupportedError if it has not the library that was chosen.

    A library that the user preloads replaces glibc, whose tunables then change nothing; nor do they in another libc.
    """
    preloaded = os.environ.get(_PRELOAD, "")
    loaded = next((name for name in LIBRARIES if name in preloaded and f"lib{name}" in _read_maps()), None)
    if chosen in LIBRARIES and loaded != chosen:
        raise UnsupportedError(f"memory {chosen} was preloaded as {preloaded!r}, and the loader did not take it")
    return loaded or (chosen if _read_glibc() else SYSTEM)


def _read_glibc() -> tuple[int, ...]:
    """Read the version of glibc; empty for another libc."""
    name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ") if _HAS_VERSION else ("", "", "")
    return tuple(map(int, version.split("."))) if name == "glibc" else ()


def _read_maps() -> str:
    try:
        return Path("/proc/self/maps").read_text()
    except OSError:
        return ""


def _find_library(name: str) -> str:
    return ctypes.util.find_library(name) or ctypes.util.find_library(f"{name}_minimal") or ""


def _read_huge_pages() -> str:
    try:
        return _HUGE_PAGES.read_text()
    except OSError:
        return "[never]"
