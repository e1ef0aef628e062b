"""Recordings: a sweep that was measured once is there again without measuring, or is said to be missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from state import NewRuns, share_state_dir

from ngbkit import set_options
from ngbkit.errors import UsageError
from ngbkit.runs import recordings
from ngbkit.sweep.grid import Sweep
from ngbkit.workloads.base import Workload

state_dir = pytest.fixture(autouse=True, scope="module")(share_state_dir)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(recordings.FOLDER, str(tmp_path / "recorded"))
    return tmp_path / "recorded"


def test_what_was_measured_is_there_again(
    mlp: Workload, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last sample, for another user; with the same run id, and once more on request."""
    asked = Sweep(mlp, ["identity", "onnxruntime"], repeats=10, threads=1)
    first = asked.run()
    monkeypatch.setenv(recordings.MEASURE, "never")
    with set_options(state_dir=tmp_path / "another"):
        for _ in range(2):
            again = asked.run()
            assert np.array_equal(first["latency"], again["latency"])
            assert first.attrs["run_id"] == again.attrs["run_id"]
    monkeypatch.setenv(recordings.MEASURE, "always")
    fresh = asked.run()
    assert fresh.attrs["run_id"] != first.attrs["run_id"]
    monkeypatch.setenv(recordings.MEASURE, "missing")
    assert fresh.attrs["run_id"] == asked.run().attrs["run_id"]
    assert [asked.id] == [one.name for one in folder.iterdir()]


def test_a_budget_is_recorded_with_what_it_left_out(
    mlp: Workload, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same trials are measured, and the others predicted."""
    asked = Sweep(mlp, ["identity", "onnxruntime"], [1, 2], repeats=10, threads=1)
    first = asked.run(budget="50%")
    monkeypatch.setenv(recordings.MEASURE, "never")
    again = asked.run(budget="50%")

    assert (first["status"].values == again["status"].values).all()
    assert {"ok", "predicted"} == set(again["status"].values.ravel())
    for other in ({}, {"budget": "25%"}):
        with pytest.raises(UsageError, match="has no recording"):
            asked.run(**other)


def test_what_may_not_be_measured_is_an_error(
    mlp: Workload, folder: Path, monkeypatch: pytest.MonkeyPatch, new_runs: NewRuns
) -> None:
    """It says which sweep, and how to record it; nothing is begun."""
    monkeypatch.setenv(recordings.MEASURE, "never")
    with pytest.raises(UsageError, match=r"this sweep of mlp has no recording .* --re-run"):
        Sweep(mlp).start()
    monkeypatch.setenv(recordings.MEASURE, "sometimes")
    with pytest.raises(UsageError, match="missing, never, always"):
        Sweep(mlp).start()

    assert [] == new_runs()
