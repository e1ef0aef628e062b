"""A sweep as a job array: divided by bundle, collected from its journals, cancelled, resumed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakeslurm import FakeSlurm
from patience import wait_until

import ngbkit
from ngbkit import runs
from ngbkit.api import Sweep
from ngbkit.cluster import engines
from ngbkit.cluster.devices import Device
from ngbkit.device import array, plan
from ngbkit.device.array import divide
from ngbkit.errors import DeviceError, JournalError, UsageError
from ngbkit.fleet import array as launcher
from ngbkit.fleet import job_queue
from ngbkit.runs import Run
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Failure
from ngbkit.workloads.base import Workload

NETWORK = Workload(name="net", source="timm", spec={"model": "net"})


def build_sweep(sizes: int = 6, **more: object) -> Sweep:
    return Sweep([NETWORK], ["identity", "onnxruntime"], range(2, sizes + 2), devices=["nodes"], repeats=30, **more)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSlurm]:
    """A cluster of this machine: an array of three indices, whose queue is read in a moment."""
    fake = FakeSlurm(tmp_path / "slurm")
    tests = Path(__file__).parents[1]
    monkeypatch.setenv("PATH", str(fake.bin), prepend=":")
    monkeypatch.setenv("PYTHONPATH", f"{Path(ngbkit.__file__).parents[1]}:{tests / 'bench'}", prepend=":")
    file = tmp_path / "devices.toml"
    keys = {"launch": "array", "indices": 3, "python": str(fake.python), "state_dir": str(tmp_path / "shared")}
    file.write_text("[nodes]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in keys.items()))
    file.chmod(0o600)
    monkeypatch.chdir(tmp_path)
    for module, name in ((job_queue, "LOOK_S"), (job_queue, "FIRST_LOOK_S"), (launcher, "LOOK_S")):
        monkeypatch.setattr(module, name, 0.2)
    monkeypatch.setattr(launcher, "_POLL_S", 0.05)
    monkeypatch.setattr(job_queue, "_queues", {})
    yield fake
    subprocess.run(["scancel", "7"], check=True)
    engines.close()


def read_ids(run: Run) -> list[str]:
    """Read the ids of the trials that the client has a record of."""
    with Journal(run.folder / "journal.sqlite", writable=False) as journal:
        return [record.trial_id for record in journal.records()]


def count_starts(path: Path) -> int:
    """Count the trials that were begun and have no record; 0 for a journal that is being created."""
    try:
        with Journal(path, writable=False) as journal:
            return len(journal.unfinished("measure"))
    except JournalError:
        return 0


def test_a_sweep_is_divided_by_bundle() -> None:
    """Each trial is in one share, its bundle with it, and the division is always the same."""
    sweep = build_sweep(10)
    shares = divide(sweep, "nodes", 4)

    assert Counter(trial.id for trial in sweep.trials()) == Counter(name for share in shares for name in share)
    assert [6, 6, 4, 4] == list(map(len, shares))
    assert shares == divide(build_sweep(10), "nodes", 4)
    for group in sweep.groups("nodes"):
        assert 1 == sum(bool(share & {trial.id for trial in group.trials}) for share in shares)


def test_networks_that_take_turns_stay_together() -> None:
    """One index of the array measures all networks of a bundle."""
    networks = [Workload(name=name, source="timm", spec={"model": name}) for name in ("a", "b")]
    sweep = Sweep(networks, ["identity"], [1, 2], devices=["nodes"], together=True)

    for bundle, share in zip(sweep.bundles("nodes"), divide(sweep, "nodes", 2), strict=True):
        assert share == {trial.id for trial in bundle.trials}


@pytest.mark.guard
def test_a_sweep_is_measured_by_an_array(slurm: FakeSlurm) -> None:
    """One array measures every trial of a sweep exactly once."""
    run = build_sweep().start()
    data = run.result()

    assert {"ok"} == set(data["status"].values.ravel())
    assert sorted(trial.id for trial in run.sweep.trials()) == sorted(read_ids(run))
    assert ["--array=0-2"] == [call.split()[-3] for call in slurm.read_calls("sbatch")]
    assert {"7_0": "COMPLETED", "7_1": "COMPLETED", "7_2": "COMPLETED"} == slurm.list_jobs()
    assert "cores_usable" in json.loads(data.attrs["environments"])["nodes"]


def test_a_killed_index_is_told_from_one_that_waits(slurm: FakeSlurm, tmp_path: Path) -> None:
    """The others go on; the error names it, and a resumed run measures its share alone."""
    sweep = build_sweep()
    shares = divide(sweep, "nodes", 3)
    slurm.hold(*shares[1])
    texts = []
    run = sweep.start()
    run.subscribe(lambda run: texts.append(run.progress.text))
    wait_until(lambda: slurm.list_jobs().get("7_1") == "RUNNING" and len(run.statuses) == 4)
    wait_until(lambda: any("1 of 3 wait (Resources), 1 of 3 run, 1 of 3 have ended" in text for text in texts))
    slurm.kill("7_1")
    run.wait()

    assert "failed" == run.state
    assert isinstance(run.error, DeviceError)
    assert "1 of 3 indices ended before they had measured their share: index 1 (out_of_memory) lacks 4" in str(
        run.error
    )
    assert sorted(shares[0] | shares[2]) == sorted(read_ids(run))

    slurm.hold()
    again = runs.resume(run.id)
    again.result()

    assert sorted(trial.id for trial in sweep.trials()) == sorted(read_ids(again))
    assert ["--array=0-2", "--array=1"] == [call.split()[-3] for call in slurm.read_calls("sbatch")]
    assert "COMPLETED" == slurm.list_jobs()["8_1"]


def test_a_stop_cancels_the_array(slurm: FakeSlurm) -> None:
    """A stop cancels the waiting jobs of an array, and counts no trial in flight as an attempt."""
    sweep = build_sweep()
    shares = divide(sweep, "nodes", 3)
    slurm.hold(*shares[1])
    run = sweep.start()
    wait_until(lambda: any(count_starts(path) for path in Path("shared/devices/nodes").glob("*/1.sqlite")))
    run.stop()
    run.wait()
    (journal,) = Path("shared/devices/nodes").glob("*/1.sqlite")

    assert "stopped" == run.state
    assert 0 == count_starts(journal)
    assert sorted(shares[0]) == sorted(read_ids(run))
    assert "CANCELLED" == slurm.list_jobs()["7_2"]


def test_a_later_client_goes_on_with_the_array(slurm: FakeSlurm) -> None:
    """The first one is killed while an index runs: no second array is submitted."""
    sweep = build_sweep()
    slurm.hold(*divide(sweep, "nodes", 3)[1])
    program = "from test_array import build_sweep; run = build_sweep().start(); print(run.id, flush=True); run.wait()"
    path = [str(Path(__file__).parent), str(Path(__file__).parents[1]), os.environ["PYTHONPATH"]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    with subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        run_id = client.stdout.readline().strip()
        wait_until(lambda: slurm.list_jobs().get("7_1") == "RUNNING")
        client.kill()
    run = runs.resume(run_id)
    wait_until(lambda: len(run.statuses) == 4)
    slurm.hold()
    run.result()

    assert sorted(trial.id for trial in sweep.trials()) == sorted(read_ids(run))
    assert 1 == len(slurm.read_calls("sbatch"))


def test_a_queue_that_does_not_answer_is_no_end(slurm: FakeSlurm) -> None:
    """The run says so once, and goes on when it answers again."""
    sweep = build_sweep()
    slurm.hold(*divide(sweep, "nodes", 3)[2])
    run = sweep.start()
    texts: list[str] = []
    run.subscribe(lambda run: texts.append(run.progress.text) if run.progress.text not in texts else None)
    wait_until(lambda: slurm.list_jobs().get("7_2") == "RUNNING")
    squeue = slurm.bin / "squeue"
    squeue.rename(slurm.bin / "hidden")
    squeue.write_text("#!/bin/sh\necho the controller does not respond >&2; exit 1\n")
    squeue.chmod(0o700)
    wait_until(lambda: any("the controller does not respond" in text for text in texts))
    (slurm.bin / "hidden").replace(squeue)
    slurm.hold()

    assert {"ok"} == set(run.result()["status"].values.ravel())
    assert 1 == len(slurm.read_calls("sbatch"))


def test_failed_trials_are_measured_again_on_request(slurm: FakeSlurm) -> None:
    """A retry measures failed trials again, and their old records do not return."""
    sweep = build_sweep()
    run = sweep.start()
    run.result()
    chosen = sorted(trial.id for trial in sweep.trials())[0]
    with Journal(run.folder / "journal.sqlite") as journal:
        journal.finish([Failure(trial_id=chosen, status="crashed", stage="measure", error="it crashed")])
    again = runs.resume(run.id, retry=["crashed"])
    again.result()
    (index,) = (index for index, share in enumerate(divide(sweep, "nodes", 3)) if chosen in share)

    assert {"ok"} == set(again.statuses.values())
    assert [f"--array={index}"] == [call.split()[-3] for call in slurm.read_calls("sbatch")[1:]]


def test_a_refused_submission_is_an_error(slurm: FakeSlurm) -> None:
    """A refused submission is an error with the text of sbatch, and no array is noted."""
    (slurm.bin / "sbatch").write_text("#!/bin/sh\necho sbatch: error: invalid partition >&2; exit 1\n")
    run = build_sweep().start()
    run.wait()

    assert "invalid partition" in str(run.error)
    assert [] == list(Path("shared/devices/nodes").glob("*/job"))


def test_unlike_nodes_are_refused(slurm: FakeSlurm, tmp_path: Path) -> None:
    """The first node of a run says what the others must be."""
    path = tmp_path / "run" / "node.json"
    path.parent.mkdir()
    array._check_node(path)
    array._check_node(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "chip": "another chip"}))

    with pytest.raises(DeviceError, match=r"chip was another chip and is .*--constraint"):
        array._check_node(path)
    assert ["node.json"] == [file.name for file in path.parent.iterdir()]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "7", '"x"', '{"packages": []}', '{"packages": 5}', "[" * 10_000]
)
def test_a_damaged_description_of_the_first_node_is_named(text: str, tmp_path: Path) -> None:
    """The error of a damaged description of the first node has its path."""
    path = tmp_path / "node.json"
    path.write_text(text)
    with pytest.raises(DeviceError, match=r"invalid description of the first node in .*node\.json: .*Remove that file"):
        array._check_node(path)


def test_a_budget_for_tuning_is_shared_out() -> None:
    """All indices together spend what one engine would."""
    sweep = array._share_budget(build_sweep(tuning_seconds=100), 0.25)

    assert 25.0 == sweep.tuning_seconds
    assert [trial.id for trial in build_sweep().trials()] == [trial.id for trial in sweep.trials()]


def test_a_job_array_has_no_engine() -> None:
    """A request for the engine of a job array is an error with a remedy."""
    engine = launcher.start(Device(label="nodes", launch="array", indices=3))
    with pytest.raises(UsageError, match=r'device nodes is a job array, which has no engine.*launch = "slurm"'):
        engine.view.apply_async()
    with pytest.raises(UsageError, match="is a job array"):
        engine.vitals()


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", "{}", "null", '"x"', "\x00", "[" * 10_000),
        *(
            json.dumps({"indices": 3, "cores": None, "environment": {}, "spec": {}, **change})
            for change in (
                {},
                {"indices": 0},
                {"indices": "x"},
                {"cores": "01"},
                {"environment": {"A": 1}},
                {"environment": "x"},
                {"spec": []},
                {"spec": {"state_dir": "/x", "run_id": "a", "device": "b", "sweep": {"workloads": 5}}},
            )
        ),
    ],
)
def test_an_invalid_spec_is_refused(text: str, tmp_path: Path) -> None:
    """The error names the file."""
    path = tmp_path / "spec.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"invalid spec .*spec\.json"):
        array.ArraySpec.load(path)
    with pytest.raises(UsageError, match="cannot read the spec"):
        array.ArraySpec.load(tmp_path / "none.json")


@pytest.mark.parametrize(("arguments", "problem"), [([], "expected SPEC and an index"), (["x"], "an index: --index")])
def test_the_command_says_what_it_needs(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command reports a missing index outside of a batch system."""
    monkeypatch.delenv("SLURM_ARRAY_TASK_ID", raising=False)
    with pytest.raises(SystemExit):
        plan.main(arguments)

    assert problem in capsys.readouterr().err
