"""The command line: what it prints where, what it keeps, and what it exits with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import wait_until
from state import NewRuns, share_state_dir

from ngbkit import cli
from ngbkit.cluster import engines
from ngbkit.dataset import storage
from ngbkit.errors import DeviceError, UsageError

SLOW = 'slow{"seconds":0.05}'


state_dir = pytest.fixture(autouse=True, scope="module")(share_state_dir)


@pytest.fixture
def measured(mlp_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A file that `ngbkit run` wrote."""
    out = tmp_path / "measured.nc"
    words = ["run", str(mlp_file), "-c", "identity,onnxruntime", "-b", "1,2", "-r", "3", "-o", str(out)]

    assert cli.OK == cli.main([*words, "--threads", "1"])
    capsys.readouterr()
    return out


def test_run_prints_a_table_and_writes_the_dataset(
    new_runs: NewRuns, mlp_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table goes to stdout and the progress to stderr, so that either can be kept."""
    out = tmp_path / "new" / "out.nc"
    code = cli.main(["run", str(mlp_file), "-c", "identity,onnxruntime{optimization:basic}", "-r", "3", "-o", str(out)])
    printed = capsys.readouterr()

    assert cli.OK == code
    assert {"ok"} == set(storage.load(out)["status"].values.ravel())
    assert "throughput (samples/s)" in printed.out
    assert 'onnxruntime{"optimization":"basic"}' in printed.out
    assert new_runs()[0].id in printed.out
    assert "2 of 2 trials" in printed.err


def test_json_is_one_list_of_trials(mlp_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every figure of a trial, and null where there is none."""
    code = cli.main(["run", str(mlp_file), "-c", "onnxruntime,raising", "-b", "1,2", "-r", "3", "--json", "--quiet"])
    printed = capsys.readouterr()
    trials: list[dict[str, Any]] = json.loads(printed.out)
    good, bad = trials[0], trials[-1]

    assert (cli.OK, "", 4) == (code, printed.err, len(trials))
    assert ("onnxruntime", "ok", None, 1.0) == (good["compiler"], good["status"], good["speedup"], good["ase"])
    assert good["throughput"] == pytest.approx(1 / good["latency"])
    assert ("raising", "failed", None) == (bad["compiler"], bad["status"], bad["throughput"])
    assert bad["error"]


def test_show_prints_a_file_and_a_run(new_runs: NewRuns, measured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Any figure of either."""
    of_file = cli.main(["show", str(measured), "--figure", "bsr"]), capsys.readouterr().out
    of_run = cli.main(["show", new_runs()[0].id, "--figure", "bsr"]), capsys.readouterr().out
    cli.main(["show", str(measured), "--json"])

    assert of_file == of_run
    assert cli.OK == of_file[0]
    assert "batch scaling resilience" in of_file[1]
    assert 4 == len(json.loads(capsys.readouterr().out))


def test_resume_measures_what_is_asked_for_again(
    new_runs: NewRuns, mlp_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run goes on by its id; with --retry also trials that have a record."""
    cli.main(["run", str(mlp_file), "-c", "identity,raising", "-r", "3", "--quiet"])
    began = new_runs()[0].id
    capsys.readouterr()
    code = cli.main(["resume", began, "--retry", "failed,timeout", "--json", "--quiet"])
    statuses = [trial["status"] for trial in json.loads(capsys.readouterr().out)]

    assert (cli.OK, began) == (code, new_runs()[0].id)
    assert ["ok", "failed"] == statuses


def test_a_budget_measures_a_part_and_predicts_the_rest(
    new_runs: NewRuns, mlp_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each trial says which; an estimate before it begins nothing, and one after it knows of it."""
    words = ["run", str(mlp_file), "-c", "identity,onnxruntime", "-b", "1,2,4,8", "-r", "5", "--quiet"]
    assert cli.OK == cli.main([*words, "--estimate"])
    assert "8 trials in 4 groups" in capsys.readouterr().out
    assert [] == new_runs()
    assert cli.OK == cli.main([*words, "--budget", "50%", "--json"])
    statuses = [trial["status"] for trial in json.loads(capsys.readouterr().out)]
    assert {"ok": 4, "predicted": 4} == {status: statuses.count(status) for status in statuses}
    assert cli.OK == cli.main([*words, "--estimate", "--json"])
    report = json.loads(capsys.readouterr().out)

    assert report["seconds"] > 0
    assert [1, 2, 4, 8] == [row["batch_size"] for row in report["best"]]
    assert cli.INVALID == cli.main([*words, "--budget", "soon"])
    assert cli.INVALID == cli.main([*words, "--predictor", "some.safetensors"])


def test_lists_are_printed_as_tables_and_as_json(measured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What there is, for people and for programs."""
    for verb, key in (("runs", "run"), ("devices", "device"), ("compilers", "compiler")):
        codes = cli.main([verb]), cli.main([verb, "--json"])
        table, _, rows = capsys.readouterr().out.partition("\n[")

        assert (cli.OK, cli.OK) == codes
        assert table.startswith(key)
        assert key in json.loads(f"[{rows}")[0]


def test_all_about_a_compiler_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Of each that is named, for people and for programs."""
    codes = (
        cli.main(["compilers", "onnxruntime", "identity"]),
        cli.main(["compilers", "onnxruntime,identity", "--json"]),
    )
    sheets, _, rows = capsys.readouterr().out.partition("\n[\n")
    onnxruntime, identity = json.loads(f"[{rows}")

    assert (cli.OK, cli.OK) == codes
    assert sheets.startswith("onnxruntime\n  is ")
    assert "\n\nidentity\n  is " in sheets
    assert ("onnxruntime", "identity") == (onnxruntime["compiler"], identity["compiler"])
    for name, option in onnxruntime["options"].items():
        assert f"option {name}" in sheets
        assert {"default", "choices", "help"} == set(option)


def test_a_run_says_why_its_trials_failed(
    new_runs: NewRuns, mlp_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It tells where to read it; there is the error, and what was said last, of trials that failed alike but once."""
    cli.main(["run", str(mlp_file), "-c", "identity,raising", "-b", "1,2", "-r", "3"])
    message = capsys.readouterr().err
    run_id = new_runs()[0].id
    codes = [cli.main(["runs", "--failures", run_id, *words]) for words in ([], ["--lines", "1"], ["--json"])]
    printed = capsys.readouterr().out
    sheets, _, rows = printed.partition("\n[\n")
    first, short = sheets.split("\nmlp batch 1 raising")

    assert [cli.OK] * 3 == codes
    assert f"2 of its trials gave no result: `ngbkit runs --failures {run_id}` says why" in message
    assert first.startswith("mlp batch 1 raising on cpu; mlp batch 2 raising on cpu\n")
    assert "RuntimeError: it fell over" in first
    assert "in _raising" in first
    assert "in _raising" not in short
    assert ["compile"] * 2 == [failure["stage"] for failure in json.loads(f"[{rows}")]


def test_a_run_without_failures_says_so(new_runs: NewRuns, measured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a sentence, and as an empty list."""
    run_id = new_runs()[0].id
    codes = cli.main(["runs", "--failures", run_id]), cli.main(["runs", "--failures", run_id, "--json"])

    assert (cli.OK, cli.OK) == codes
    assert "No trial of this run failed.\n[]\n" == capsys.readouterr().out


def test_caches_are_listed_and_cleaned(measured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a run has left, until it is cleaned away."""
    codes = [cli.main(["cache", *words]) for words in ([], ["clean", "--keep", "0"], ["list", "--json"])]
    before, _, after = capsys.readouterr().out.partition("\n{\n")
    left = json.loads(f"{{{after}")

    assert [cli.OK] * 3 == codes
    assert before.startswith("kind")
    assert "removed" in before
    assert 0 == left["totals"]["preparation"]["count"]


def test_a_run_after_a_clean_measures_as_before(mlp_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The engine that is still there makes again what it needs."""
    words = ["run", str(mlp_file), "-c", "identity,onnxruntime", "-r", "3", "--quiet"]
    codes = [cli.main(words), cli.main(["cache", "clean", "--keep", "0"]), cli.main(words)]

    assert [cli.OK] * 3 == codes


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
        (["resume", "2099"], "there is no run '2099'"),
        (["show", "none.nc"], "there is no file none.nc"),
        (["selfcheck", "--groups", "1"], "invalid groups: got 1; expected an integer >= 2"),
        (["selfcheck", "--precision", "1%", "-r", "5"], "Give one of them"),
        (["selfcheck", "--run", "2099"], "there is no run '2099'"),
        (["selfcheck", "--run", "2099", "--hog"], "--hog is about measuring. Give one of them"),
        (["selfcheck", "--rounds", "3"], "Add --full"),
        (["selfcheck", "--full", "--rounds", "0"], "invalid rounds: got 0"),
        (["compilers", "opnvino"], "Did you mean openvino"),
        (["runs", "--failures", "2099"], "there is no run '2099'"),
        (["runs", "--failures"], "expected one argument"),
        (["cache", "clean"], "--keep 5GB, --older-than 30d, or names"),
        (["cache", "clean", "--keep", "some"], "use a form such as 5GB"),
        (["cache", "import", "none.tar"], "cannot read none.tar"),
        (["cache", "-d", "orin"], "unknown device 'orin'"),
        (["fly"], "invalid choice: 'fly'"),
        ([], "required: COMMAND"),
    ],
)
def test_what_is_not_valid_is_told_in_a_paragraph(
    new_runs: NewRuns, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, without a traceback, and before anything is measured."""
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
    """And replaced where that is asked for."""
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
    assert cli.OK == cli.main(["resume", new_runs()[0].id, "-o", str(out), "--quiet"])
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
    """With the command that brings it."""
    monkeypatch.setitem(sys.modules, "xarray", None)
    code = cli.main(["run", "resnet18"])

    assert cli.INVALID == code
    assert (
        "ngbkit: xarray is not installed. Install it with: pip install 'ngbkit[notebook]'\n" == capsys.readouterr().err
    )


def test_selfcheck_prints_a_table_and_json(new_runs: NewRuns, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a run that it starts, or of one that there was; the figures are the same."""
    words = ["--groups", "2", "-r", "12", "--threads", "1", "-c", "identity"]
    measured = cli.main(["selfcheck", *words]), capsys.readouterr()
    outcome = cli.main(["selfcheck", "--run", new_runs()[0].id, "--json"]), capsys.readouterr()
    content = json.loads(outcome[1].out)

    assert (cli.OK, cli.OK) == (measured[0], outcome[0])
    assert "identity against identity" in measured[1].out
    assert "4 of 4 trials" in measured[1].err
    assert (2, 12, new_runs()[0].id, None) == (
        content["groups"],
        content["samples"],
        content["run"],
        content["disturbed"],
    )
    assert f"{content['smallest_speedup']:.4f}" in measured[1].out


@pytest.mark.parametrize(
    "name", ["run", "resume", "runs", "show", "devices", "compilers", "cache", "selfcheck", "demo"]
)
def test_every_command_that_prints_figures_prints_json_too(name: str) -> None:
    """For programs."""
    assert cli._JSON in cli._COMMANDS[name][1]


def shell(state_dir: Path, *words: str, **options: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "NGBKIT_STATE_DIR": str(state_dir)}
    command = [sys.executable, "-m", "ngbkit", *words]
    return subprocess.Popen(command, env=environment, text=True, stderr=subprocess.PIPE, **options)


def test_an_interrupt_keeps_what_was_measured(
    new_runs: NewRuns, mlp_file: Path, tmp_path: Path, state_dir: Path
) -> None:
    """It exits with 130, says how to go on, and the file holds the trials until then."""
    out = tmp_path / "out.nc"
    words = ["run", str(mlp_file), "-c", f"identity,{SLOW}", "-b", "1:8", "-r", "20", "-o", str(out)]
    with shell(state_dir, *words, stdout=subprocess.DEVNULL) as process:
        wait_until(lambda: any(summary.statuses.get("ok", 0) >= 2 for summary in new_runs()))
        process.send_signal(signal.SIGINT)
        _, message = process.communicate()
    statuses = list(storage.load(out)["status"].values.ravel())

    assert cli.INTERRUPTED == process.returncode
    assert f"Resume with: `ngbkit resume {new_runs()[0].id}`" in message
    assert "Traceback" not in message
    assert {"ok", "pending"} == set(statuses)


def test_a_reader_that_leaves_is_no_error(state_dir: Path) -> None:
    """As with `ngbkit compilers | head -1`: no traceback, and the exit status of a broken pipe."""
    with shell(state_dir, "compilers", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        message = process.stderr.read() if process.stderr else ""

    assert (cli.BROKEN_PIPE, "") == (process.returncode, message)


def test_help_and_version_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """They go to stdout, and are no error."""
    codes = []
    for words in (["--version"], ["run", "--help"]):
        with pytest.raises(SystemExit) as left:
            cli.main(words)
        codes.append(left.value.code)
    printed = capsys.readouterr().out

    assert [0, 0] == codes
    assert printed.startswith("ngbkit ")
    assert "--batch-sizes" in printed
