"""The command line: what it refuses, and what outlives a failure."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from measuredfiles import write_measured_file
from state import NewRuns, share_state_dir

from ngbkit import cli
from ngbkit.cluster import engines
from ngbkit.dataset import storage
from ngbkit.errors import DeviceError, UsageError

state_dir = pytest.fixture(autouse=True, scope="module")(share_state_dir)
measured = pytest.fixture(write_measured_file)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "resnet81"], "Did you mean resnet18"),
        (["run", "resnet18", "-c", "opnvino"], "Did you mean openvino"),
        (["run", "resnet18", "-b", "0"], "invalid batch size: got 0"),
        (["run", "resnet18", "-d", "orin"], "unknown device 'orin'"),
        (["run", "resnet18", "--batchsize", "1"], "Did you mean --batch-sizes"),
        (["run", "resnet18", "-r", "many"], "invalid int value: 'many'. `ngbkit run --help`"),
        (["run", "none.onnx"], "there is no file none.onnx"),
        (["run", "resnet18", "-o", "."], "is a folder"),
        (["runs", "--resume", "2099"], "there is no run '2099'"),
        (["show", "none.nc"], "there is no file none.nc"),
        (["selfcheck", "--groups", "1"], "invalid groups: got 1; expected an integer >= 2"),
        (["selfcheck", "--precision", "1%", "-r", "5"], "Give one of them"),
        (["selfcheck", "2099"], "there is no run '2099'"),
        (["selfcheck", "2099", "--hog"], "--hog is about measuring. Give one of them"),
        (["selfcheck", "2099", "--history"], "--history compares stored runs and measures nothing"),
        (["compilers", "opnvino"], "Did you mean openvino"),
        (["runs", "--failures", "2099"], "there is no run '2099'"),
        (["cache", "clean"], "--keep 5GB, or names"),
        (["cache", "clean", "--keep", "some"], "use a form such as 5GB"),
        (["cache", "-d", "orin"], "unknown device 'orin'"),
        (["fly"], "invalid choice: 'fly'"),
        ([], "required: COMMAND"),
    ],
)
def test_what_is_not_valid_is_told_in_a_paragraph(
    new_runs: NewRuns, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Invalid arguments print a paragraph on stderr, without a traceback, before measuring."""
    code = cli.main(words)
    printed = capsys.readouterr()

    assert (cli.INVALID, "") == (code, printed.out)
    assert message in printed.err
    assert printed.err.startswith("ngbkit: ")
    assert "Traceback" not in printed.err
    assert [] == new_runs()


def test_a_file_that_exists_is_refused_before_measuring(
    new_runs: NewRuns, measured: Path, mlp_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`run` refuses an existing output file before it measures; `--overwrite` replaces it."""
    before, count = measured.read_bytes(), len(new_runs())
    refused = cli.main(["run", str(mlp_file), "-r", "3", "-o", str(measured)])
    message, unchanged = capsys.readouterr().err, measured.read_bytes()
    replaced = cli.main(["run", str(mlp_file), "-r", "3", "-o", str(measured), "--overwrite", "--quiet"])

    assert (cli.INVALID, cli.OK) == (refused, replaced)
    assert "--overwrite" in message
    assert before == unchanged
    assert (count + 1, ["identity"]) == (len(new_runs()), list(storage.load(measured)["compiler"].values))


def test_measurements_outlive_a_full_disk(
    new_runs: NewRuns,
    mlp_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The message says which run holds them, and that run can be shown and written elsewhere."""
    out = tmp_path / "other.nc"

    def full(*_: Any, **__: Any) -> None:
        raise UsageError("out.nc cannot be written: there is no room.")

    with monkeypatch.context() as patch:
        patch.setattr(storage, "save", full)
        code = cli.main(["run", str(mlp_file), "-r", "3", "-o", str(tmp_path / "out.nc"), "--quiet"])
    message = capsys.readouterr().err

    assert cli.FAILED == code
    assert f"no room. Nothing is lost, run {new_runs()[0].id} holds it: `ngbkit show {new_runs()[0].id}`" in message
    assert cli.OK == cli.main(["runs", "--resume", new_runs()[0].id, "-o", str(out), "--quiet"])
    assert {"ok"} == set(storage.load(out)["status"].values.ravel())


def test_a_run_without_any_result_fails(mlp_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table is printed all the same, and the reason after it."""
    code = cli.main(["run", str(mlp_file), "-c", "raising", "-r", "3", "--quiet"])
    printed = capsys.readouterr()

    assert cli.FAILED == code
    assert "failed" in printed.out
    assert "ngbkit: no trial gave a result, all are failed: " in printed.err


def test_a_run_that_fails_keeps_what_it_measured(
    new_runs: NewRuns,
    mlp_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The dataset is written with what is missing as pending."""

    def lost(*_: Any, **__: Any) -> None:
        raise DeviceError("the engine did not come up.")

    monkeypatch.setattr(engines, "acquire", lost)
    out = tmp_path / "out.nc"
    code = cli.main(["run", str(mlp_file), "-r", "3", "-o", str(out), "--quiet"])
    message = capsys.readouterr().err

    assert cli.FAILED == code
    assert f"run {new_runs()[0].id} failed" in message
    assert "the engine did not come up." in message
    assert {"pending"} == set(storage.load(out)["status"].values.ravel())


def test_a_missing_package_is_named_before_measuring(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error of a missing package has the command that installs it, before anything is measured."""
    monkeypatch.setitem(sys.modules, "xarray", None)
    code = cli.main(["run", "resnet18"])

    assert cli.INVALID == code
    assert (
        "ngbkit: xarray is not installed. Install it with: pip install 'ngbkit[notebook]'\n" == capsys.readouterr().err
    )
