"""What every child's environment is set to, so that all compilers run under the same conditions."""

from __future__ import annotations

import os

SPIN_COUNT = "3000"
TVM_SPIN_COUNT = "30"
# The most that glibc's own adaption comes to: pieces up to 32 MB stay with the process.
KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20)}


def child_settings(threads: int) -> dict[str, str]:
    """The variables that OpenMP and BLAS read when they are loaded, so that fork servers must have them.

    An OpenMP wait policy of the user's own is left as it is. Without one, libgomp spins 300,000 times before a thread
    sleeps, and as soon as anything else runs on its cores it spins away the time of the thread that it waits for. With
    3,000 on two quiet cores, resnet18, efficientnet_b1 and deit3_small take 1.04, 1.03 and 1.01 of what they take by
    that default; 1,000 costs 1.16, 1.28 and 1.05. Beside a busy process a block of two convolutions (0.8 ms) takes
    3.3 ms, where a count of 10,000 makes it 0.8 or 7.5 ms as chance has it.
    `ngbkit selfcheck --disturbances` measures what the default would do here.

    TVM's own threads spin 300,000 times after each call, which takes 150 ms of a core from whoever has the next turn
    (resnet18, two threads: half of any pause of 300 ms). With 30 they take 0.1 ms, and a call takes as long as before.

    glibc gives memory back to the kernel, or keeps it for the next call, by the largest piece that the process has ever
    freed. Two convolutions on 64 x 56 x 56 take 3.4 ms in a fresh process, with 508 page faults a call, and 2.4 ms with
    none in one that has once freed 30 MB, as any process does that has loaded a network. So the thresholds are where
    such a process has them, from the start and for all.
    """
    spun = os.environ.get("TVM_THREAD_POOL_SPIN_COUNT", TVM_SPIN_COUNT)
    settings = {"OMP_NUM_THREADS": str(threads), "TVM_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": "1"}
    chosen = {name: os.environ[name] for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT") if name in os.environ}
    kept = {name: os.environ.get(name, value) for name, value in KEPT_MEMORY.items()}
    settings["TVM_THREAD_POOL_SPIN_COUNT"] = spun
    return {**settings, **(chosen or {"GOMP_SPINCOUNT": SPIN_COUNT}), **kept}
