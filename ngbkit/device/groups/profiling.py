"""Profiled rounds of a group after its timed ones: each column calls its program with and without the profiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ngbkit.device.groups.worker import Worker
from ngbkit.device.isolation.profiling import build_refusal
from ngbkit.device.timing import rounds
from ngbkit.user_text import format_size

PROFILED_ROUNDS = 12
"""Rounds in which every column is profiled."""

# A turn has about that many seconds of calls with the profiler, and as many without.
_TURN_S = 0.05
_MOST_CALLS = 5


def profile_workers(
    workers: Sequence[Worker], seed: int, report: Callable[[int, int], None], memory_bytes: float
) -> None:
    """Profile workers in rounds of shuffled turns; each keeps its profile, or the reason why it has none.

    `report` receives the completed rounds and their number. A profiler may hold the network a second time: the largest
    workers have no profile if such copies of all would take more than `memory_bytes`.
    """
    free = memory_bytes
    for worker in sorted(workers, key=lambda worker: worker.peak_memory_bytes):
        free -= worker.peak_memory_bytes
        if free < 0:
            size, limit = format_size(worker.peak_memory_bytes), format_size(int(memory_bytes))
            worker.profile = build_refusal(
                f"its profiler may take another {size} of memory, and {limit} were free for all columns: measure fewer "
                "columns or smaller batches"
            )
    workers = [worker for worker in workers if not worker.profile]
    for number in range(PROFILED_ROUNDS if workers else 0):
        report(number, PROFILED_ROUNDS)
        for worker in rounds.shuffle(workers, seed, number):
            if not worker.profile:
                worker.profile_turn(count_calls(worker.steady_call_s))
    for worker in workers:
        worker.read_profile()


def count_calls(call_s: float) -> int:
    """Count the calls of a turn with the profiler, by the duration of a call."""
    return min(max(round(_TURN_S / call_s), 1), _MOST_CALLS) if call_s > 0 else _MOST_CALLS
