"""The command line: what it lists, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from measuredfiles import write_measured_file
from state import NewRuns, share_state_dir

from ngbkit import cli
from ngbkit.commands import compilers
from ngbkit.commands.command import JSON, load_commands

state_dir = pytest.fixture(autouse=True, scope="module")(share_state_dir)
measured = pytest.fixture(write_measured_file)


def test_lists_are_printed_as_tables_and_as_json(measured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`runs`, `devices` and `compilers` print a table, and JSON on request."""
    for verb, key in (("runs", "run"), ("devices", "device"), ("compilers", "compiler")):
        codes = cli.main([verb]), cli.main([verb, "--json"])
        table, _, rows = capsys.readouterr().out.partition("\n[")

        assert (cli.OK, cli.OK) == codes
        assert table.startswith(key)
        assert key in json.loads(f"[{rows}")[0]


def test_all_about_a_compiler_is_printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`compilers` prints all facts of each named compiler, as text or as JSON."""
    monkeypatch.setattr(compilers, "_try_imports", lambda _modules: "")
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
    """A failed run names the command that lists its errors with their last output."""
    cli.main(["run", str(mlp_file), "-c", "identity,raising", "-b", "1,2", "-r", "3"])
    message = capsys.readouterr().err
    run_id = new_runs()[0].id
    codes = [cli.main(["runs", "--failures", run_id, *words]) for words in ([], ["--json"])]
    printed = capsys.readouterr().out
    sheets, _, rows = printed.partition("\n[\n")
    cli.main(["runs", "--failures"])

    assert [cli.OK] * 2 == codes
    assert f"2 of its trials gave no result: `ngbkit runs --failures {run_id}` says why" in message
    assert sheets.startswith("mlp batch 1 raising on cpu; mlp batch 2 raising on cpu\n")
    assert "RuntimeError: it fell over" in sheets
    assert "in _raising" in sheets
    assert sheets.strip() in capsys.readouterr().out
    assert ["compile"] * 2 == [failure["stage"] for failure in json.loads(f"[{rows}")]


def test_failures_of_no_run_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The failures of the last run are no empty list where nothing was measured yet."""
    monkeypatch.setenv("NGBKIT_STATE_DIR", str(tmp_path))

    assert cli.INVALID == cli.main(["runs", "--failures"])
    assert "there is no run yet" in capsys.readouterr().err


def test_a_run_without_failures_says_so(new_runs: NewRuns, measured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The failures of a run without any are a sentence, or an empty list in JSON."""
    run_id = new_runs()[0].id
    codes = cli.main(["runs", "--failures", run_id]), cli.main(["runs", "--failures", run_id, "--json"])

    assert (cli.OK, cli.OK) == codes
    assert "No trial of this run failed.\n[]\n" == capsys.readouterr().out


@pytest.mark.guard
def test_caches_are_listed_and_cleaned(measured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`cache` lists the files that a run has left, and `cache clean` removes them."""
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


@pytest.mark.parametrize("name", ["run", "runs", "show", "devices", "compilers", "cache", "selfcheck", "demo"])
def test_every_command_that_prints_figures_prints_json_too(name: str) -> None:
    """Every command that prints figures has the option --json."""
    assert JSON in load_commands()[name].shell_arguments


def test_help_and_version_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The help and the version are printed to stdout and are no error."""
    codes = []
    for words in (["--version"], ["run", "--help"]):
        with pytest.raises(SystemExit) as left:
            cli.main(words)
        codes.append(left.value.code)
    printed = capsys.readouterr().out

    assert [0, 0] == codes
    assert printed.startswith("ngbkit ")
    assert "--batch-sizes" in printed
