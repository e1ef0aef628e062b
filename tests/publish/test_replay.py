"""Replaying a site: its figures from its recordings, in a state folder that knows nothing of them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ngbkit import cli, options, requirements, set_options
from ngbkit.compilers import onnxruntime
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.publish import remeasurement
from ngbkit.publish.manifest import Manifest
from ngbkit.publish.replaying import ReplayFolder, replay
from ngbkit.registry import find_version
from ngbkit.runs import recordings
from ngbkit.runs.folders import list_ids


@pytest.fixture(autouse=True)
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader has no run and no settings."""
    monkeypatch.setenv(options.STATE_DIR, str(tmp_path / "state"))
    for name in (recordings.FOLDER, recordings.MEASURE):
        monkeypatch.delenv(name, raising=False)


def test_an_archive_is_replayed_without_measuring(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every figure is the same; a second call executes nothing again, and another site needs another folder."""
    words = ["replay", str(site / "archive.zip"), "-o", str(tmp_path / "out"), "01-first.ipynb"]
    assert cli.OK == cli.main(words)
    printed = capsys.readouterr()
    assert "All 2 figures are the same. Nothing was measured." in printed.out
    assert "code of the site runs now, with your rights, in" in printed.err
    executed = tmp_path / "out" / "executed" / "01-first.ipynb"
    modified_ns = executed.stat().st_mtime_ns
    assert cli.OK == cli.main([*words, "--json"])
    figures = json.loads(capsys.readouterr().out)["figures"]

    assert ["same"] * 2 == [figure["verdict"] for figure in figures]
    assert modified_ns == executed.stat().st_mtime_ns
    with pytest.raises(UsageError, match="that of an earlier replay of the same site"):
        ReplayFolder.open(site, tmp_path / "out")
    assert [] == list_ids()


def test_an_altered_site_runs_no_code(site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error says where the reader may read its code; a signature that is asked for must be there."""
    altered = Path(shutil.copytree(site, tmp_path / "site"))
    notebook = altered / "notebooks" / "02-again.ipynb"
    program = f"from pathlib import Path; Path({str(tmp_path / 'ran')!r}).touch()"
    notebook.write_text(notebook.read_text().replace("import pandas as pd", program))
    words = ["replay", str(altered), "-o", str(tmp_path / "out"), "02-again"]
    key = tmp_path / "key.pub"
    key.write_text("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE0000000000000000000000000000000000000000\n")

    assert cli.INVALID == cli.main(words) == cli.main([*words, "--again"])
    printed = capsys.readouterr().err
    unpacked = tmp_path / "out" / "published" / "notebooks"
    assert "notebooks/02-again.ipynb: it was changed" in printed
    assert f"read its notebooks in {unpacked}, and run them in JupyterLab" in printed
    assert program in (unpacked / "02-again.ipynb").read_text()
    assert cli.INVALID == cli.main(["replay", str(site), "-o", str(tmp_path / "signed"), "--signer", str(key)])
    assert "the site is not signed" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


def test_the_sweeps_of_a_site_fit_this_machine(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device of the author is mapped, and a compiler that is not here is left out; both are said."""
    monkeypatch.setenv(options.DEVICE, "bench")
    folder = ReplayFolder.open(site, tmp_path / "out")
    versions = {onnxruntime.PACKAGE: None}
    monkeypatch.setattr(requirements, "find_version", lambda name: versions.get(name, find_version(name)))
    (sweep,) = remeasurement.list_sweeps(folder, folder.manifest.notebooks, 5)

    assert sweep.sweep is not None
    assert (("bench",), ("identity",), 5) == (sweep.sweep.devices, sweep.sweep.compilers, sweep.sweep.repeats)
    assert "mlp (01-first, 02-again)" == sweep.name or "mlp (01-first)" == sweep.name
    line = f"onnxruntime is left out: {onnxruntime.PACKAGE} not installed; install with: pip install"
    assert [line, "cpu of its author is bench here"] == [note.partition(" 'ngbkit")[0] for note in sweep.notes[:2]]


def test_two_sweeps_of_one_notebook_are_told_apart(site: Path, tmp_path: Path) -> None:
    """Each sweep is judged under a name of its own."""
    folder = ReplayFolder.open(site, tmp_path / "out")
    (recording,) = (path.parent for path in folder.recordings.glob("*/run.json"))
    shutil.copytree(recording, folder.recordings / "another")
    sweeps = remeasurement.list_sweeps(folder, folder.manifest.notebooks)

    assert ["sweep 1", "sweep 2"] == [sweep.name.rpartition(", ")[2] for sweep in sweeps]


def test_a_sweep_that_is_not_judged_is_a_failure(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command fails unless every sweep is measured and judged."""
    folder = ReplayFolder.open(site, tmp_path / "out")
    (sweep,) = remeasurement.list_sweeps(folder, folder.manifest.notebooks)
    sweeps = [sweep]
    monkeypatch.setattr(remeasurement, "list_sweeps", lambda *_: sweeps)
    monkeypatch.setattr(remeasurement, "start", lambda *_: None)
    monkeypatch.setattr(remeasurement, "judge", lambda *_: [])
    monkeypatch.setattr("ngbkit.commands.shell.ShellCall.wait", lambda *_: None)
    words = ["replay", str(site), "-o", str(tmp_path / "out"), "--again"]

    assert cli.OK == cli.main(words)
    sweeps.append(replace(sweep, name="another", sweep=None))
    assert cli.FAILED == cli.main(words)


def test_a_site_without_the_file_of_a_network_is_not_measured(site: Path, tmp_path: Path) -> None:
    """A sentence says which network lacks its file."""
    folder = ReplayFolder.open(site, tmp_path / "out")
    (folder.notebooks / "data" / "mlp.onnx").unlink()
    with set_options(state_dir=tmp_path / "another"):
        (sweep,) = remeasurement.list_sweeps(folder, folder.manifest.notebooks)

    assert sweep.sweep is None
    assert sweep.notes[-1].startswith("mlp cannot be measured here")


def test_errors_of_replaying(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown notebook, options without their counterpart, and a version that built the site are named."""
    with pytest.raises(UnknownNameError, match=r"01-frist.*01-first"):
        replay(site, tmp_path / "out", only=["01-frist"])
    assert cli.INVALID == cli.main(["replay", str(site), "-r", "5"])
    monkeypatch.setenv(recordings.MEASURE, "never")
    assert cli.INVALID == cli.main(["replay", str(site), "--again"])
    manifest = Manifest.read(site)
    monkeypatch.setattr("importlib.metadata.version", lambda _name: "9.9")
    notes = ReplayFolder(tmp_path / "out", manifest, site).check()

    assert any('pip install "ngbkit[all]==' in note for note in notes)
