"""Listeners of a run: none of them can end its measurement."""

from __future__ import annotations

import pytest
from patience import wait_until
from state import share_state_dir

from ngbkit.api import Sweep
from ngbkit.runs import Run
from ngbkit.runs.progress_display import list_warnings
from ngbkit.workloads.base import Workload

state_dir = pytest.fixture(autouse=True, scope="module")(share_state_dir)


def divide(run: Run) -> None:
    _ = 1 / 0


def leave(run: Run) -> None:
    raise SystemExit(f"at {run.progress.done} trials")


def interrupt(run: Run) -> None:
    raise KeyboardInterrupt


def test_a_run_survives_what_its_listeners_raise(mlp: Workload, caplog: pytest.LogCaptureFixture) -> None:
    """All are called until the end; the first exception of each is a warning of the run, and logged."""
    states = []
    run = Sweep(mlp, ["onnxruntime"], [1, 2], repeats=5, threads=1).start()
    for listener in (divide, leave, interrupt, lambda run: states.append(run.state)):
        run.subscribe(listener)
    data = run.result()
    wait_until(lambda: "finished" in states)
    warned = [line for line in list_warnings(run) if line.startswith("listener")]

    assert ("finished", None, {"ok"}) == (run.state, run.error, set(data["status"].values.ravel()))
    assert "listener: divide raised ZeroDivisionError('division by zero'); the run goes on" in warned
    assert 3 == len(warned)
    assert [ZeroDivisionError, SystemExit, KeyboardInterrupt] == [record.exc_info[0] for record in caplog.records]
