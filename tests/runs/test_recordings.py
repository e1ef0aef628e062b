"""Recordings: a recorded sweep is replayed without measuring, and a missing recording is an error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from state import NewRuns, share_state_dir

from ngbkit import set_options
from ngbkit.api import Sweep
from ngbkit.errors import UsageError
from ngbkit.runs import recordings
from ngbkit.workloads.base import Workload

state_dir = pytest.fixture(autouse=True, scope="module")(share_state_dir)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(recordings.FOLDER, str(tmp_path / "recorded"))
    return tmp_path / "recorded"


def test_a_recorded_sweep_is_replayed(
    mlp: Workload, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recorded sweep is replayed with every sample, and measured again on request."""
    sweep = Sweep(mlp, ["identity", "onnxruntime"], repeats=10, threads=1)
    first = sweep.run()
    monkeypatch.setenv(recordings.MEASURE, "never")
    with set_options(state_dir=tmp_path / "another"):
        for _ in range(2):
            replayed = sweep.run()
            assert np.array_equal(first["latency"], replayed["latency"])
            assert first.attrs["run_id"] == replayed.attrs["run_id"]
    monkeypatch.setenv(recordings.MEASURE, "always")
    fresh = sweep.run()
    assert fresh.attrs["run_id"] != first.attrs["run_id"]
    monkeypatch.setenv(recordings.MEASURE, "missing")
    assert fresh.attrs["run_id"] == sweep.run().attrs["run_id"]
    assert [sweep.id] == [path.name for path in folder.iterdir()]


def test_a_budget_is_recorded_with_its_predictions(
    mlp: Workload, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replayed run has the same measured and the same predicted trials."""
    sweep = Sweep(mlp, ["identity", "onnxruntime"], [1, 2], repeats=10, threads=1)
    first = sweep.run(budget="50%")
    monkeypatch.setenv(recordings.MEASURE, "never")
    replayed = sweep.run(budget="50%")

    assert (first["status"].values == replayed["status"].values).all()
    assert {"ok", "predicted"} == set(replayed["status"].values.ravel())
    for other in ({}, {"budget": "25%"}):
        with pytest.raises(UsageError, match="has no recording"):
            sweep.run(**other)


def test_a_missing_recording_is_an_error(
    mlp: Workload, folder: Path, monkeypatch: pytest.MonkeyPatch, new_runs: NewRuns
) -> None:
    """The error of a missing recording names the sweep and how to record it."""
    monkeypatch.setenv(recordings.MEASURE, "never")
    with pytest.raises(UsageError, match=r"this sweep of mlp has no recording .* --re-run"):
        Sweep(mlp).start()
    monkeypatch.setenv(recordings.MEASURE, "sometimes")
    with pytest.raises(UsageError, match='expected "missing", "never" or "always"'):
        Sweep(mlp).start()

    assert [] == new_runs()
