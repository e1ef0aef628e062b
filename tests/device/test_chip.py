"""A device whose chip has telemetry: its readings during a trial are in the trial's record."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from plans import carry_out, measure, open_journal

from ngbkit.api import Sweep
from ngbkit.hardware import telemetry
from ngbkit.hardware.telemetry import Reading
from ngbkit.workloads.base import Workload


class Steady:
    """A chip of 10 W, half busy, whose temperature rises with every reading."""

    lag_s, period_s = 0.1, 0.02

    def __init__(self) -> None:
        self._temperatures = itertools.count(40)

    def read(self) -> Reading:
        now = time.monotonic()
        return Reading(
            time_s=now,
            power_w=10.0,
            busy_percent=50.0,
            memory_used_bytes=3 << 30,
            clock_mhz=900.0,
            temperature_c=float(next(self._temperatures)),
            throttled=frozenset({"thermal"}),
        )

    def describe(self) -> dict[str, Any]:
        return {"name": "steady"}


def test_the_record_contains_the_telemetry(mlp: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record has the energy per call, which is the power times the duration of a call."""
    monkeypatch.setattr(telemetry, "open", lambda accelerator: Steady())
    records = measure(Sweep(mlp, ["identity", "onnxruntime"], [1], repeats=5, threads=1, patience=0))
    with open_journal() as journal:
        environment = journal.notes("environment")["cpu"]

    assert environment["telemetry"] == {"name": "steady"}
    for record in records.values():
        assert len(record.latency_s) == 5
        assert record.gpu_percent == pytest.approx(50)
        assert record.gpu_memory_bytes == 3 << 30
        assert record.energy_j == pytest.approx(10 * sorted(record.latency_s)[2])
        assert record.facts["chip"]["throttled"] == ["thermal"]
        assert record.facts["chip"]["clock_mhz"] == 900


def test_without_telemetry_the_record_has_none(mlp: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary CPU has neither energy nor a GPU, and its record has no such facts."""
    monkeypatch.setattr(telemetry, "open", lambda accelerator: None)
    record = measure(Sweep(mlp, ["identity"], [1], repeats=3, threads=1))["identity", 1]

    assert (record.gpu_percent, record.gpu_memory_bytes, record.energy_j) == (None, None, None)
    assert "chip" not in record.facts


@pytest.mark.usefixtures("gpu")
def test_a_gpu_has_no_peaks_of_its_cpu(mlp: Workload) -> None:
    """A roofline of them would place every network on the GPU above it."""
    carry_out(Sweep(mlp, ["identity"], [1], repeats=3, threads=1), accelerator="cuda:0")
    with open_journal() as journal:
        environment = journal.notes("environment")["cpu"]

    assert {"fault_s"} == environment["peaks"].keys()
