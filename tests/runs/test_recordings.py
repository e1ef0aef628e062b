"""Recordings: a recorded sweep is replayed without measuring, and a missing recording is an error."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from state import NewRuns, share_state_dir

from ngbkit import options, set_options
from ngbkit.api import Sweep
from ngbkit.device import contents
from ngbkit.errors import UsageError
from ngbkit.runs import recordings
from ngbkit.runs.folders import build_metadata
from ngbkit.runs.run_context import RunContext
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.trials import facts_key
from ngbkit.workloads import cell
from ngbkit.workloads.base import Workload
from ngbkit.workloads.content.manifests import BuildManifest, FileSet

state_dir = pytest.fixture(autouse=True, scope="module")(share_state_dir)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(recordings.FOLDER, str(tmp_path / "recorded"))
    return tmp_path / "recorded"


@pytest.mark.guard
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
    with pytest.raises(UsageError, match=r"this sweep of mlp has no recording .* --measure missing"):
        Sweep(mlp).start()
    monkeypatch.setenv(recordings.MEASURE, "sometimes")
    with pytest.raises(UsageError, match='expected "missing", "never" or "always"'):
        Sweep(mlp).start()

    assert [] == new_runs()


@pytest.mark.parametrize("fault", ["it is of another sweep", "1 of 1 trials are missing or damaged"])
def test_an_altered_recording_is_refused(
    fault: str, mlp: Workload, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged recording, or one of another sweep, is not replayed as what was measured."""
    sweep, other = (Sweep(mlp, ["identity"], [size], repeats=5, threads=1) for size in (1, 2))
    sweep.run()
    if "another" in fault:
        (folder / sweep.id).rename(folder / other.id)
    else:
        journal = folder / sweep.id / "journal.sqlite"
        journal.write_bytes(journal.read_bytes()[:4096])
    monkeypatch.setenv(recordings.MEASURE, "never")
    with pytest.raises(UsageError, match=f"not as it was measured: {fault}"):
        (other if "another" in fault else sweep).start()


def test_recordings_beside_a_published_notebook_are_replayed(
    mlp: Workload, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A published folder replays by default, any other one where measuring is forbidden; each run says so."""
    sweep = Sweep(mlp, ["identity"], repeats=5, threads=1)
    first = sweep.run(again=True)  # other modules share its state
    place = tmp_path / "site" / "notebooks"
    shutil.copytree(folder, place / "data" / "recorded")
    monkeypatch.delenv(recordings.FOLDER)
    monkeypatch.chdir(place)
    texts = []
    with set_options(state_dir=tmp_path / "another"):
        assert recordings.Recordings.from_environment() is None
        monkeypatch.setenv(recordings.MEASURE, "never")
        replayed = sweep.start()
        replayed.wait()  # the next one has its id
        texts.append(replayed.known_trials["cpu"])
        with pytest.raises(UsageError, match=r"no recording in data/recorded.*\. Run it without NGBKIT_MEASURE"):
            Sweep(mlp, batch_sizes=[3]).start()
        monkeypatch.delenv(recordings.MEASURE)
        (place.parent / recordings.MANIFEST).write_text("{}")
        run = sweep.start()
        texts.append(run.known_trials["cpu"])
        beside = recordings.Recordings.from_environment()

    assert first.attrs["run_id"] == run.id
    assert all(text.startswith("replayed from data/recorded: measured on ") for text in texts)
    assert texts[0].endswith(", and NGBKIT_MEASURE=never forbids measuring")
    assert texts[1].endswith("; --again measures here")
    assert beside.find(sweep) is not None
    assert beside.find(sweep, again=True) is None
    assert beside.describe_lack(sweep).startswith("measured here again")
    assert "has no recording of this sweep" in beside.describe_lack(Sweep(mlp, batch_sizes=[3]))


def test_a_sweep_adopts_its_earlier_run(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run becomes the recording, unless a module beside the notebook has other content than it measured."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "helper.py").write_text("WIDTH = 8\n")
    source = "import helper\nimport torch\nmodel = torch.nn.Linear(helper.WIDTH, 2)\ninput_shape = (8,)"
    sweep = Grid(workloads=cell.from_source(source))
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text(json.dumps(build_metadata("run", sweep)))
    Journal(run / "journal.sqlite").close()
    RunContext(notebook="/home/a/mine.ipynb", cell="a cell", note="private").save(run)
    helper = BuildManifest(files=FileSet.read([str(tmp_path / "helper.py")]))
    manifests = contents.open_manifests(options.get_state_dir(), "cpu")
    manifests.add("recipe", "content", helper, manifests.add_packages([])[0])
    entry = {"folder": str(run), "digests": {facts_key("model", {}): "content"}}
    (tmp_path / "runs.json").write_text(json.dumps({f"{sweep.id}-4-trials": entry}))
    monkeypatch.setenv(recordings.EARLIER, str(tmp_path / "runs.json"))
    monkeypatch.setenv(recordings.MEASURE, "never")
    (tmp_path / "helper.py").write_text("WIDTH = 16\n")
    recorded = recordings.Recordings.from_environment()
    with pytest.raises(UsageError, match="has no recording"):
        recorded.find(sweep, "4-trials")
    (tmp_path / "helper.py").write_text("WIDTH = 8\n")
    with pytest.raises(UsageError, match="has no recording"):
        recorded.find(sweep)

    recording = folder / f"{sweep.id}-4-trials"
    assert recording == recorded.find(sweep, "4-trials")
    assert (run / "journal.sqlite").read_bytes() == (recording / "journal.sqlite").read_bytes()
    assert RunContext(notebook="mine.ipynb", cell="a cell") == RunContext.load(recording)


@pytest.mark.parametrize("content", ["null", "[]", "1", "{", '{"cell": 1'])
def test_a_damaged_context_is_an_empty_one(tmp_path: Path, content: str) -> None:
    """A run whose notebook and cell are not known is listed all the same."""
    (tmp_path / "context.json").write_text(content)

    assert RunContext() == RunContext.load(tmp_path)
