"""Runs that are stopped, resumed and retried on an engine that they share: nothing measured is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from journalled import is_measuring, load_records
from patience import wait_until
from state import share_state_dir

from ngbkit import runs
from ngbkit.api import Sweep
from ngbkit.errors import DeviceError, FencedError, UsageError
from ngbkit.runs import Run
from ngbkit.sweep.journal import Journal
from ngbkit.workloads.base import Workload

SLOW = 'slow{"seconds":0.02}'

state_dir = pytest.fixture(scope="module", autouse=True)(share_state_dir)


@pytest.mark.guard
def test_a_sweep_becomes_a_dataset(mlp: Workload) -> None:
    """A sweep is measured by engine and children, journalled, and assembled to a dataset."""
    run = Sweep(mlp, ["identity", "onnxruntime"], [1, 2], repeats=10, threads=1).start(again=True)
    dataset = run.result()

    assert {"ok"} == set(dataset["status"].values.ravel())
    assert (1, 1, 2, 2, 10) == dataset["latency"].shape
    assert [0, 10] == dataset["anchor_latency"].notnull().sum("repeat").values.ravel().tolist()
    assert ("s", True) == (dataset["latency"].attrs["units"], bool((dataset["latency"] > 0).all()))
    assert "onnxruntime, graph optimisations off" in dataset.coords["baseline"].values
    # Each was assembled in a second of its own.
    again = runs.load_dataset(run.folder).assign_attrs(created=dataset.attrs["created"])
    assert dataset.identical(again)


@pytest.mark.guard
def test_stopping_keeps_what_was_measured_and_resuming_does_the_rest(mlp: Workload) -> None:
    """The dataset of a stopped run lacks samples, and that of the resumed run has all, on the same device only.

    A label stands for one device in one state; its earlier measurements stay as they are.
    """
    run = Sweep(mlp, ["identity", SLOW], [1, 2], repeats=60, threads=1).start()
    wait_until(lambda: is_measuring(run))
    run.stop()
    assert run.wait()
    partial = run.dataset()
    before = load_records(run)
    with Journal(run.folder / "journal.sqlite") as journal:
        environment = journal.notes("environment")["cpu"]
        packages = {**environment["packages"], "numpy": "0.1"}
        journal.note("environment", "cpu", {**environment, "chip": "Another", "packages": packages})
    refused = runs.resume(run.id)
    with pytest.raises(DeviceError, match=r"device cpu has changed since .*chip was Another and is .*; numpy was 0\.1"):
        refused.result()

    assert before == load_records(refused)
    with Journal(run.folder / "journal.sqlite") as journal:
        journal.note("environment", "cpu", environment)
    resumed = runs.resume(run.id)
    complete = resumed.result()

    assert ("stopped", "finished") == (run.state, resumed.state)
    assert 60 > partial["latency"].sel(batch_size=2).notnull().sum("repeat").max()
    assert [60] * 4 == complete["latency"].notnull().sum("repeat").values.ravel().tolist()
    assert partial["latency"].sel(batch_size=1).equals(complete["latency"].sel(batch_size=1))


def test_a_live_run_cannot_be_resumed(mlp: Workload) -> None:
    """Two clients never drive one run."""
    run = Sweep(mlp, ["identity"], [1], repeats=50, threads=1).start(again=True)  # other modules share its state
    with pytest.raises(FencedError, match="held by another process"):
        runs.resume(run.id)
    run.result()


def test_retrying_runs_failures_again(mlp: Workload) -> None:
    """A retry measures the failures of the given statuses again, and the baseline once more beside them."""
    run = Sweep(mlp, ["identity", "refusing", "hungry"], [1], repeats=5, threads=1).start()
    run.result()
    before = load_records(run)
    again = runs.resume(run.id, retry=["unsupported"])
    again.result()
    after = load_records(again)

    assert set(before["identity", 1].rounds) < set(after["identity", 1].rounds)
    assert before["hungry", 1] == after["hungry", 1]
    assert before["refusing", 1].started_at < after["refusing", 1].started_at
    with pytest.raises(UsageError, match="invalid status to retry: got 'broken'; expected one of ok, "):
        runs.resume(run.id, retry=["broken"])


def disturb(run: Run, trial: tuple[str, int]) -> None:
    """Mark every sample of one trial as contended, and no other sample."""
    with Journal(run.folder / "journal.sqlite") as journal:
        for key, record in load_records(run).items():
            marked = range(len(record.latency_s)) if key == trial else ()
            journal.finish([replace(record, contended_samples=tuple(marked))])


def test_groups_that_are_not_conclusive_are_measured_again(mlp: Workload) -> None:
    """All trials of such a group, which are compared with each other, and none of another group."""
    run = Sweep(mlp, ["identity", "onnxruntime"], [1, 2], repeats=8, threads=1).start()
    run.result()
    disturb(run, ("onnxruntime", 2))
    before = load_records(run)
    repeated = runs.resume(run.id, retry=["inconclusive"])
    repeated.result()
    after = load_records(repeated)

    assert [before[name, 1] for name in ("identity", "onnxruntime")] == [
        after[name, 1] for name in ("identity", "onnxruntime")
    ]
    for name in ("identity", "onnxruntime"):
        assert before[name, 2].started_at < after[name, 2].started_at
    assert (4, 4) == (repeated.progress.done, repeated.progress.total)

    disturb(repeated, ("onnxruntime", 2))
    before = load_records(repeated)
    stopped = runs.resume(run.id, retry=["inconclusive"])
    stopped.stop()
    stopped.wait()
    # A measurement stays until another replaces it.
    assert before == load_records(stopped)


def test_a_trial_that_was_stopped_is_measured_again(mlp: Workload) -> None:
    """A resumed run measures what was stopped, and keeps it where it is stopped again with fewer rounds."""
    run = Sweep(mlp, ["identity", "onnxruntime"], [1, 2], repeats=8, threads=1).start()
    run.result()
    with Journal(run.folder / "journal.sqlite") as journal:
        journal.finish([replace(load_records(run)[name, 2], stopped=True) for name in ("identity", "onnxruntime")])
    before = load_records(run)
    again = runs.resume(run.id)
    again.result()
    after = load_records(again)

    assert [before[name, 1] for name in ("identity", "onnxruntime")] == [
        after[name, 1] for name in ("identity", "onnxruntime")
    ]
    assert not any(after[name, 2].stopped for name in ("identity", "onnxruntime"))


def test_an_error_of_any_text_costs_its_own_trial_alone(mlp: Workload) -> None:
    """An error of hostile text fails only its own trial, and is made printable."""
    run = Sweep(mlp, ["identity", 'raising{"kind":"hostile"}'], [1], repeats=3, threads=1).start()
    data = run.result()
    (failure,) = run.failures()

    assert ["ok", "failed"] == data["status"].values.ravel().tolist()
    assert "RuntimeError: it   fell over" == failure.error
    assert "raise RuntimeError" in failure.detail
    assert failure.detail.translate({ord("\n"): None}).isprintable()
