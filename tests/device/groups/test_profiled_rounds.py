"""The rounds in which columns are profiled, where memory allows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from plans import measure

from ngbkit import Sweep
from ngbkit.device.groups import bench
from ngbkit.device.groups.profiling import PROFILED_ROUNDS, profile_workers
from ngbkit.workloads.base import Workload


@dataclass
class FakeProfiledWorker:
    """Counts its turns."""

    peak_memory_bytes: int
    steady_call_s: float = 0.01
    profile: dict[str, Any] = field(default_factory=dict)
    turns: int = 0

    def profile_turn(self, calls: int) -> None:
        self.turns += calls > 0

    def read_profile(self) -> None:
        self.profile = self.profile or {"notes": []}


def test_only_those_are_profiled_whose_copies_fit_together() -> None:
    """The largest are left out, with the sizes in a sentence."""
    workers: list[Any] = [FakeProfiledWorker(size) for size in (3_000, 1_000, 5_000)]
    profile_workers(workers, 0, lambda *_: None, 4_500)

    assert [PROFILED_ROUNDS, PROFILED_ROUNDS, 0] == [worker.turns for worker in workers]
    assert [[], []] == [worker.profile["notes"] for worker in workers[:2]]
    assert "may take another 5 kB of memory, and 4.5 kB were free" in workers[2].profile["notes"][0]


def test_a_full_memory_costs_no_trial(mlp: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that are not profiled for want of memory are measured all the same."""
    monkeypatch.setattr(bench.resources, "read_available_memory_bytes", lambda: 10**6)
    sweep = Sweep(mlp, ["onnxruntime", "openvino"], [1], repeats=4, min_rounds=2, threads=1, profile=True)
    records = measure(sweep)

    assert 2 == len(records)
    assert all("and 667 kB were free for all columns" in str(record.profile) for record in records.values())
