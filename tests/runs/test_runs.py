"""Runs on real engines: they survive the loss of any process, and leave none behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from journalled import is_measuring, load_records
from patience import wait_until
from watching import Processes

from ngbkit import runs
from ngbkit.api import Sweep
from ngbkit.cluster import dispatch, engines, replies
from ngbkit.cluster.attach import attach
from ngbkit.cluster.dispatch import Dispatch
from ngbkit.cluster.engine import Engine
from ngbkit.errors import DeviceError, RunNotFoundError, UnknownNameError, UsageError
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Measurement, is_stopped
from ngbkit.sweep.trials import ANCHOR
from ngbkit.workloads.base import Workload

SLOW = 'slow{"seconds":0.02}'


@pytest.fixture(autouse=True)
def _no_process_left(processes: Processes) -> Iterator[None]:
    """Every process that a test started for its state folder ends once its engines are closed."""
    yield
    engines.close()
    wait_until(lambda: not processes())


@pytest.mark.guard
def test_a_killed_engine_costs_what_was_in_flight(mlp: Workload, processes: Processes) -> None:
    """A killed engine is replaced, and only unfinished trials are measured."""
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


@pytest.mark.guard
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
        with pytest.raises(DeviceError, match=rf"ngbkit runs --resume {run.id}"):
            run.result()

    assert 2 == len(load_records(run))


def test_an_unknown_device_is_an_error_that_suggests_another(mlp: Workload) -> None:
    """The error of an unknown device suggests another, and nothing is started."""
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
    """Resuming recovers the readable records, and the client's own journal has the rest; a cut trial is measured."""
    run = Sweep(mlp, ["identity", SLOW], [1, 2], repeats=60, threads=1).start()
    wait_until(lambda: is_measuring(run))
    run.stop()
    run.wait()
    engines.close()
    before = load_records(run)
    finished = {key: record for key, record in before.items() if not is_stopped(record)}
    (journal,) = (state_dir / "devices" / "cpu").glob("*.sqlite")
    os.truncate(journal, journal.stat().st_size // 2)
    resumed = runs.resume(run.id)
    resumed.result()
    after = load_records(resumed)

    assert {("identity", 1), (SLOW, 1)} <= finished.keys()
    assert finished.items() <= after.items()
    assert len(resumed.sweep) == len(after)
    assert not any(map(is_stopped, after.values()))


STEPS = [(Dispatch, "_start"), (Engine, "hello"), (Engine, "push"), (Engine, "submit"), (dispatch, "follow")]


@pytest.mark.parametrize(
    ("owner", "step"), [*STEPS, (replies, "parse_event")], ids=lambda value: getattr(value, "__name__", value)
)
def test_a_run_can_be_stopped_while_it_starts(
    mlp: Workload, owner: object, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run can be stopped before its engine starts, before its plan arrives, or at its first event."""
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
