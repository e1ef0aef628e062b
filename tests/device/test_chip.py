"""A device whose chip tells of itself: what it told while a trial was timed is in the trial's record."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from plans import carry_out

from ngbkit import options
from ngbkit.device import plan
from ngbkit.hardware import telemetry
from ngbkit.hardware.telemetry import Reading
from ngbkit.sweep.grid import Sweep
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Measurement
from ngbkit.workloads.base import Workload


class Steady:
    """A chip of 10 W, half busy, that gets hotter with every look."""

    lag_s = 0.1

    def __init__(self) -> None:
        self._looks = itertools.count(40)

    def read(self) -> Reading:
        now = time.monotonic()
        return Reading(
            at_s=now,
            power_w=10.0,
            busy_percent=50.0,
            memory_used_bytes=3 << 30,
            clock_mhz=900.0,
            temperature_c=float(next(self._looks)),
            throttled=frozenset({"thermal"}),
        )

    def describe(self) -> dict[str, Any]:
        return {"name": "steady"}


def test_what_the_chip_told_is_in_the_record(mlp: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its energy a call is its power for as long as a call takes, though no turn was long enough to tell it."""
    monkeypatch.setattr(telemetry, "open", lambda accelerator: Steady())
    found, _ = carry_out(Sweep(mlp, ["identity", "onnxruntime"], [1], repeats=5, threads=1))
    with Journal(plan.journal_path(options.state_dir(), "cpu", "run"), writable=False) as journal:
        about = journal.notes("environment")["cpu"]

    assert about["telemetry"] == {"name": "steady"}
    for record in found.values():
        assert isinstance(record, Measurement)
        assert len(record.latency_s) == 5
        assert record.gpu_percent == pytest.approx(50)
        assert record.gpu_memory_bytes == 3 << 30
        assert record.energy_j == pytest.approx(10 * sorted(record.latency_s)[2])
        assert record.facts["chip"]["throttled"] == ["thermal"]
        assert record.facts["chip"]["clock_mhz"] == 900


def test_without_such_a_chip_nothing_is_told(mlp: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary CPU has neither energy nor a GPU, and its record says nothing of one."""
    monkeypatch.setattr(telemetry, "open", lambda accelerator: None)
    found, _ = carry_out(Sweep(mlp, ["identity"], [1], repeats=3, threads=1))
    record = found["identity", 1]

    assert isinstance(record, Measurement)
    assert (record.gpu_percent, record.gpu_memory_bytes, record.energy_j) == (None, None, None)
    assert "chip" not in record.facts
