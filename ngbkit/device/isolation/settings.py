"""Environment variables of every child, so that all compilers run under the same conditions."""

from __future__ import annotations

import os
from collections.abc import Mapping

SPIN_COUNT = "3000"
TVM_SPIN_COUNT = "30"
# The maximum that glibc itself adapts to: blocks up to 32 MB stay with the process.
MALLOC_THRESHOLDS = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20)}


def build_child_settings(threads: int, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Build the variables that OpenMP and BLAS read when they are loaded, so that fork servers must set them.

    A user's own OpenMP wait policy stays. Without one, libgomp spins 300,000 times before a thread sleeps, and if
    anything else runs on its cores, the spinning uses up the time of the thread that it waits for. With 3,000 on two
    quiet cores, resnet18, efficientnet_b1 and deit3_small take 1.04, 1.03 and 1.01 times as long as with that default;
    with 1,000 it is 1.16, 1.28 and 1.05. Beside a busy process a block of two convolutions (0.8 ms) takes 3.3 ms; with
    10,000 it takes 0.8 or 7.5 ms at random. `ngbkit selfcheck --disturbances` measures the effect of the default here.

    TVM's own threads spin 300,000 times after each call, which costs the next turn 150 ms of a core (resnet18, two
    threads: half of any pause of 300 ms). With 30 they spin for 0.1 ms, and a call takes as long as before.

    glibc returns memory to the kernel, or keeps it for the next call, depending on the largest block that the process
    has ever freed. Two convolutions on 64 x 56 x 56 take 3.4 ms in a fresh process, with 508 page faults a call, and
    2.4 ms without any in a process that has once freed 30 MB, as any process does that has loaded a network. So every
    process starts with the thresholds of the latter.
    """
    spin_count = environment.get("TVM_THREAD_POOL_SPIN_COUNT", TVM_SPIN_COUNT)
    settings = {"OMP_NUM_THREADS": str(threads), "TVM_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": "1"}
    policy = {name: environment[name] for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT") if name in environment}
    memory = {name: environment.get(name, value) for name, value in MALLOC_THRESHOLDS.items()}
    settings["TVM_THREAD_POOL_SPIN_COUNT"] = spin_count
    return {**settings, **(policy or {"GOMP_SPINCOUNT": SPIN_COUNT}), **memory}
