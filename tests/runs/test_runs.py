"""Runs on real engines: they survive the loss of any process, and leave none behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from patience import wait_until
from watching import Processes

from ngbkit import runs
from ngbkit.api import Sweep
from ngbkit.cluster import engines, replies
from ngbkit.cluster.attach import attach
from ngbkit.cluster.dispatch import Dispatch
from ngbkit.cluster.engine import Engine
from ngbkit.errors import DeviceError, FencedError, RunNotFoundError, UnknownNameError, UsageError
from ngbkit.runs import Run
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Measurement, Record
from ngbkit.sweep.trials import ANCHOR
from ngbkit.workloads.base import Workload

SLOW = 'slow{"seconds":0.02}'


@pytest.fixture(autouse=True)
def _no_process_left(processes: Processes) -> Iterator[None]:
    """Every process that a test started for its state folder ends once its engines are closed."""
    yield
    engines.close()
    wait_until(lambda: not processes())


def load_records(run: Run) -> dict[tuple[str, int], Record]:
    trials = {trial.id: (trial.compiler, trial.batch_size) for trial in run.sweep.trials()}
    with Journal(run.folder / "journal.sqlite", writable=False) as journal:
        return {trials[record.trial_id]: record for record in journal.records() if record.trial_id in trials}


def is_measuring(run: Run) -> bool:
    """Whether the first group is recorded and the second one is being timed."""
    return run.progress.done >= 2 and run.progress.text.startswith("measuring mlp batch 2")


def test_a_sweep_becomes_a_dataset(mlp: Workload) -> None:
    """The path from engine and children over journals to the dataset."""
    run = Sweep(mlp, ["identity", "onnxruntime"], [1, 2], repeats=10, threads=1).start()
    dataset = run.result()

    assert {"ok"} == set(dataset["status"].values.ravel())
    assert (1, 1, 2, 2, 10) == dataset["latency"].shape
    assert [0, 10] == dataset["anchor_latency"].notnull().sum("repeat").values.ravel().tolist()
    assert ("s", True) == (dataset["latency"].attrs["units"], bool((dataset["latency"] > 0).all()))
    assert "onnxruntime, graph optimisations off" in dataset.coords["baseline"].values
    # Each was assembled in a second of its own.
    again = runs.load_dataset(run.folder).assign_attrs(created=dataset.attrs["created"])
    assert dataset.identical(again)


def test_a_killed_engine_costs_what_was_in_flight(mlp: Workload, processes: Processes) -> None:
    """Another engine is started, which measures only unfinished trials."""
    run = Sweep(mlp, ["identity", SLOW], [1, 2, 3], repeats=60, threads=1).start()
    wait_until(lambda: is_measuring(run))
    before = load_records(run)
    for process in processes("ngbkit.device.engine"):
        process.kill()
    run.result()
    after = load_records(run)

    assert len(before) >= 2
    assert before.items() <= after.items()
    assert {"ok"} == {record.status for record in after.values()}


def test_a_killed_child_costs_its_own_trial(mlp: Workload, processes: Processes) -> None:
    """The trial is recorded as a failure with a reason; the rest of its group is measured."""
    run = Sweep(mlp, ["identity", SLOW], [1, 2], repeats=200, threads=1).start()
    wait_until(lambda: is_measuring(run))
    servers = processes("ngbkit.device.isolation.forkserver")
    children = [child for server in servers for child in server.children()]
    # Children are forked in the order of the compilers, then the anchor: the last but one is the slow compiler's.
    sorted(children, key=lambda child: child.create_time())[-2].kill()
    run.result()
    statuses = {key: record.status for key, record in load_records(run).items()}

    assert {("identity", 1): "ok", (SLOW, 1): "ok", ("identity", 2): "ok", (SLOW, 2): "crashed"} == statuses


CLIENT = """
import sys
from ngbkit.api import Sweep
from ngbkit.sweep.trials import ANCHOR
from ngbkit.workloads import onnx
run = Sweep(onnx.file(sys.argv[1]), ["identity", 'slow{"seconds":0.02}'], [1, 2, 3], repeats=60, threads=1).start()
print(run.id, flush=True)
run.subscribe(lambda run: print(run.progress.done, run.progress.text, flush=True))
run.wait()
"""


def test_a_killed_client_leaves_nothing_behind_and_its_run_can_be_resumed(mlp_file: Path, processes: Processes) -> None:
    """`kill -9` of the process of a notebook ends its engines; resuming measures only missing trials."""
    client = subprocess.Popen([sys.executable, "-c", CLIENT, str(mlp_file)], stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    with client.stdout as lines:
        run_id = lines.readline().strip()
        for line in lines:
            if int(line.split()[0]) >= 2 and "measuring" in line:
                break
        started = processes()
        client.kill()
        client.wait()
    wait_until(lambda: not processes(), seconds=10)
    with Journal(runs.find(run_id) / "journal.sqlite", writable=False) as journal:
        before = [key for key in journal.statuses() if not key.startswith(ANCHOR)]
        recorded = {record.trial_id: record for record in journal.records()}
    run = runs.resume(run_id)
    run.result()
    with Journal(run.folder / "journal.sqlite", writable=False) as journal:
        after = {record.trial_id: record for record in journal.records()}

    assert len(started) >= 4
    assert len(before) >= 2
    assert recorded.items() <= after.items()
    assert {"ok"} == {record.status for record in after.values()}
    assert len(run.sweep) == len([key for key in after if not key.startswith(ANCHOR)])


def test_stopping_keeps_what_was_measured_and_resuming_does_the_rest(mlp: Workload) -> None:
    """The dataset of a stopped run has `pending` trials, and that of the resumed run has none."""
    run = Sweep(mlp, ["identity", SLOW], [1, 2], repeats=60, threads=1).start()
    wait_until(lambda: is_measuring(run))
    run.stop()
    assert run.wait()
    partial = run.dataset()
    resumed = runs.resume(run.id)
    complete = resumed.result()

    assert ("stopped", "finished") == (run.state, resumed.state)
    assert {"ok", "pending"} == set(partial["status"].values.ravel())
    assert {"ok"} == set(complete["status"].values.ravel())
    assert partial["latency"].sel(batch_size=1).equals(complete["latency"].sel(batch_size=1))


def test_a_live_run_cannot_be_resumed(mlp: Workload) -> None:
    """Two clients never drive one run."""
    run = Sweep(mlp, ["identity"], [1], repeats=5, threads=1).start()
    with pytest.raises(FencedError, match="held by another process"):
        runs.resume(run.id)
    run.result()


def test_retrying_runs_failures_again(mlp: Workload) -> None:
    """Only those with the given statuses."""
    run = Sweep(mlp, ["identity", "refusing", "hungry"], [1], repeats=5, threads=1).start()
    run.result()
    before = load_records(run)
    again = runs.resume(run.id, retry=["unsupported"])
    again.result()
    after = load_records(again)

    assert before["identity", 1] == after["identity", 1]
    assert before["hungry", 1] == after["hungry", 1]
    assert before["refusing", 1].started_at < after["refusing", 1].started_at
    with pytest.raises(UsageError, match="invalid status to retry: got 'broken'; expected one of ok, "):
        runs.resume(run.id, retry=["broken"])


def disturb(run: Run, trial: tuple[str, int]) -> None:
    """Mark every sample of one trial as disturbed, and no other sample."""
    with Journal(run.folder / "journal.sqlite") as journal:
        for key, record in load_records(run).items():
            assert isinstance(record, Measurement)
            marked = range(len(record.latency_s)) if key == trial else ()
            journal.finish([replace(record, disturbed_samples=tuple(marked))])


def test_groups_that_are_not_settled_are_measured_again(mlp: Workload) -> None:
    """All trials of such a group, which are compared with each other, and none of another group."""
    run = Sweep(mlp, ["identity", "onnxruntime"], [1, 2], repeats=8, threads=1).start()
    run.result()
    disturb(run, ("onnxruntime", 2))
    before = load_records(run)
    repeated = runs.resume(run.id, retry=["unsettled"])
    repeated.result()
    after = load_records(repeated)

    assert [before[name, 1] for name in ("identity", "onnxruntime")] == [
        after[name, 1] for name in ("identity", "onnxruntime")
    ]
    for name in ("identity", "onnxruntime"):
        assert before[name, 2].started_at < after[name, 2].started_at
    assert (4, 4) == (repeated.progress.done, repeated.progress.total)


def test_a_measurement_stays_until_another_replaces_it(mlp: Workload) -> None:
    """A run that is stopped while it measures again has lost nothing."""
    run = Sweep(mlp, ["identity", "onnxruntime"], [1], repeats=8, threads=1).start()
    run.result()
    disturb(run, ("onnxruntime", 1))
    before = load_records(run)
    stopped = runs.resume(run.id, retry=["unsettled"])
    stopped.stop()
    stopped.wait()

    assert before == load_records(stopped)


def test_a_trial_that_kills_its_engine_twice_is_given_up(mlp: Workload) -> None:
    """The run finishes: that trial has crashed, and all others are measured."""
    run = Sweep(mlp, ["identity", "engine-killer", "onnxruntime"], [1], repeats=5, threads=1).start()
    run.result()
    records = load_records(run)
    killer = records["engine-killer", 1]

    assert ("crashed", "engine") == (killer.status, killer.stage)  # type: ignore[union-attr]
    assert isinstance(records["identity", 1], Measurement)
    assert isinstance(records["onnxruntime", 1], Measurement)


def test_an_engine_of_the_users_own_cluster_is_used_and_left_alone(
    mlp: Workload, processes: Processes, tmp_path: Path
) -> None:
    """A plain ipyparallel cluster works, and still runs afterwards."""
    import ipyparallel

    with ipyparallel.Cluster(n=1, profile_dir=str(tmp_path / "profile"), delay=0, log_level=40) as client:
        engine = attach(client)
        run = Sweep(mlp, ["identity", "onnxruntime"], [1], repeats=5, threads=1).start(engines={"cpu": engine})
        dataset = run.result()

        assert {"ok"} == set(dataset["status"].values.ravel())
        assert [0] == client.ids
        assert [] == processes("ngbkit.device.engine")
        client[:].apply_sync(os.kill, os.getpid(), 0)
        with pytest.raises(UsageError, match="no engine 7 in the cluster; expected one of 0"):
            attach(client, target=7)


def test_a_lost_engine_of_the_users_own_is_an_error_that_says_how_to_resume(mlp: Workload, tmp_path: Path) -> None:
    """ngbkit never restarts engines that it did not start."""
    import ipyparallel

    with ipyparallel.Cluster(n=1, profile_dir=str(tmp_path / "profile"), delay=0, log_level=40) as client:
        pid = client[0].apply_sync(os.getpid)
        run = Sweep(mlp, ["identity", SLOW], [1, 2], repeats=80, threads=1).start(engines={"cpu": attach(client)})
        wait_until(lambda: is_measuring(run))
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(DeviceError, match=rf"ngbkit resume {run.id}"):
            run.result()

    assert 2 == len(load_records(run))


def test_an_unknown_device_is_an_error_that_suggests_another(mlp: Workload) -> None:
    """Nothing is started."""
    with pytest.raises(UnknownNameError, match=r"unknown device 'gpu'. Did you mean cpu\?"):
        Sweep(mlp, ["identity"], [1], devices=["gpu"]).start()


def test_runs_are_listed_the_latest_first_and_found_by_a_prefix_of_their_id(mlp: Workload) -> None:
    """The list counts the trials of each run by status."""
    first = Sweep(mlp, ["identity", "refusing"], [1], repeats=5, threads=1).start()
    first.result()
    second = Sweep(mlp, ["identity"], [1], repeats=5, threads=1).start()
    second.result()
    statuses = {summary.id: summary.statuses for summary in runs.summaries()}

    assert {first.id, second.id} == statuses.keys()
    assert {"ok": 1, "unsupported": 1} == statuses[first.id]
    assert runs.find(first.id[:-1]) == first.folder
    with pytest.raises(RunNotFoundError, match="2 runs begin with '20'"):
        runs.find("20")
    with pytest.raises(RunNotFoundError, match="there is no run 'nothing'"):
        runs.find("nothing")


def test_a_truncated_device_journal_costs_no_record(mlp: Workload, state_dir: Path) -> None:
    """Resuming recovers the readable records, and the client's own journal has the rest."""
    run = Sweep(mlp, ["identity", SLOW], [1, 2], repeats=60, threads=1).start()
    wait_until(lambda: is_measuring(run))
    run.stop()
    run.wait()
    engines.close()
    before = load_records(run)
    (journal,) = (state_dir / "devices" / "cpu").glob("*.sqlite")
    os.truncate(journal, journal.stat().st_size // 2)
    resumed = runs.resume(run.id)
    resumed.result()
    after = load_records(resumed)

    assert before.items() <= after.items()
    assert len(resumed.sweep) == len(after)


def test_an_error_of_any_text_costs_its_own_trial_alone(mlp: Workload) -> None:
    """What no encoding has, and what a terminal would obey, is replaced in it."""
    run = Sweep(mlp, ["identity", 'raising{"kind":"hostile"}'], [1], repeats=3, threads=1).start()
    data = run.result()
    (failure,) = run.failures()

    assert ["ok", "failed"] == data["status"].values.ravel().tolist()
    assert "RuntimeError: it   fell over" == failure.error
    assert "raise RuntimeError" in failure.detail
    assert failure.detail.translate({ord("\n"): None}).isprintable()


STEPS = [(Dispatch, "_start"), (Engine, "hello"), (Engine, "push"), (Engine, "submit"), (Dispatch, "_follow")]


@pytest.mark.parametrize(
    ("owner", "step"), [*STEPS, (replies, "parse_event")], ids=lambda value: getattr(value, "__name__", value)
)
def test_a_run_can_be_stopped_while_it_starts(
    mlp: Workload, owner: object, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its engine has started, before its plan has arrived, or at its first event."""
    reached, stopped, proceed = threading.Event(), threading.Event(), getattr(owner, step)

    def pause(*args: Any, **keywords: Any) -> Any:
        reached.set()
        stopped.wait()
        return proceed(*args, **keywords)

    monkeypatch.setattr(owner, step, pause)
    run = Sweep(mlp, ["identity", 'slow{"seconds":0.5}'], [1, 2, 3], repeats=100, threads=1).start()
    reached.wait()
    run.stop()
    stopped.set()

    assert run.wait()
    assert ("stopped", None) == (run.state, run.error)
    assert "pending" in run.dataset()["status"].values


def test_a_changed_device_is_not_measured_on(mlp: Workload) -> None:
    """A label stands for one device in one state; its earlier measurements stay as they are."""
    run = Sweep(mlp, ["identity", SLOW], [1, 2], repeats=60, threads=1).start()
    wait_until(lambda: is_measuring(run))
    run.stop()
    run.wait()
    before = load_records(run)
    with Journal(run.folder / "journal.sqlite") as journal:
        environment = journal.notes("environment")["cpu"]
        packages = {**environment["packages"], "numpy": "0.1"}
        changed = {**environment, "chip": "Another", "packages": packages}
        journal.note("environment", "cpu", changed)
    resumed = runs.resume(run.id)
    with pytest.raises(DeviceError, match=r"device cpu has changed since .*chip was Another and is .*; numpy was 0\.1"):
        resumed.result()

    assert before == load_records(resumed)
