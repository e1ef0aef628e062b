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
from measuredfiles import write_measured_file
from patience import wait_until
from state import NewRuns, share_state_dir

from ngbkit import cli
from ngbkit.dataset import storage

SLOW = 'slow{"seconds":0.05}'
VARIANTS = """
import torch

def model(variant):
    return {"plain": torch.nn.Linear(3, 2), "residual": torch.nn.Linear(3, 3)}[variant]

input_shape = (3,)
"""


state_dir = pytest.fixture(autouse=True, scope="module")(share_state_dir)
measured = pytest.fixture(write_measured_file)


@pytest.mark.guard
def test_run_prints_a_table_and_writes_the_dataset(
    new_runs: NewRuns, mlp_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table goes to stdout and the progress to stderr, so that either can be kept."""
    out = tmp_path / "new" / "out.nc"
    code = cli.main(["run", str(mlp_file), "-c", "identity,onnxruntime{optimization:basic}", "-r", "3", "-o", str(out)])
    printed = capsys.readouterr()

    assert cli.OK == code
    assert {"ok"} == set(storage.load(out)["status"].values.ravel())
    assert "speed-up over identity" in printed.out
    assert f"`ngbkit show {out} --all` prints throughput" in printed.out
    assert 'onnxruntime{"optimization":"basic"}' in printed.out
    assert new_runs()[0].id in printed.out
    assert "2 of 2 trials" in printed.err


def test_a_factor_of_texts_is_measured_shown_and_resumed(
    new_runs: NewRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model gets each word, and its trials are those of the run that is resumed."""
    network, out = tmp_path / "net.py", tmp_path / "out.nc"
    network.write_text(VARIANTS)
    words = [str(network), "--factor", "variant=residual,plain", "-c", "identity,raising", "-r", "3", "-o", str(out)]
    codes = [cli.main(["run", *words])]
    journalled = new_runs()[0].id
    codes += [cli.main(["runs", "--resume", journalled, "--retry", "failed"])]
    capsys.readouterr()
    codes += [cli.main(["show", journalled, "--json"])]
    trials: list[dict[str, Any]] = json.loads(capsys.readouterr().out)

    assert [cli.OK] * 3 == codes
    assert ["residual", "plain"] == storage.load(out)["variant"].values.tolist()
    assert [("residual", "ok"), ("residual", "failed"), ("plain", "ok"), ("plain", "failed")] == [
        (trial["variant"], trial["status"]) for trial in trials
    ]


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


@pytest.mark.guard
def test_show_prints_a_file_and_a_run(new_runs: NewRuns, measured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`show` prints the same figure of a file and of its run; each names its own command for more."""
    of_file = cli.main(["show", str(measured), "--figure", "bsr"]), capsys.readouterr().out
    of_run = cli.main(["show", new_runs()[0].id, "--figure", "bsr"]), capsys.readouterr().out
    cli.main(["show", str(measured), "--json"])

    assert of_file[1].partition("More:")[0] == of_run[1].partition("More:")[0]
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
    code = cli.main(["runs", "--resume", began, "--retry", "failed,timeout", "--json", "--quiet"])
    statuses = [trial["status"] for trial in json.loads(capsys.readouterr().out)]

    assert (cli.OK, began) == (code, new_runs()[0].id)
    assert ["ok", "failed"] == statuses


def test_a_conclusive_run_is_not_measured_again(
    new_runs: NewRuns, mlp_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message says so; --settle excludes --retry and --budget."""
    cli.main(["run", str(mlp_file), "-c", "onnxruntime", "-r", "6", "--quiet"])
    run = new_runs()[0]
    capsys.readouterr()

    assert cli.OK == cli.main(["runs", "--resume", run.id, "--settle"])
    assert "Nothing is inconclusive" in capsys.readouterr().out
    for other in (["--retry", "failed"], ["--budget", "50%"]):
        assert cli.INVALID == cli.main(["runs", "--resume", run.id, "--settle", *other])
        assert f"{other[0]} measure different trials" in capsys.readouterr().err


def test_a_budget_measures_a_part_and_predicts_the_rest(
    new_runs: NewRuns, mlp_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each trial says which, also when it is resumed; an estimate begins nothing, and knows of earlier runs."""
    words = ["run", str(mlp_file), "-c", "identity,onnxruntime", "-b", "1,2,4,8", "-r", "5", "--quiet"]
    assert cli.OK == cli.main([*words, "--estimate"])
    assert "8 trials in 4 groups" in capsys.readouterr().out
    assert [] == new_runs()
    assert cli.OK == cli.main([*words, "--budget", "50%", "--json"])
    statuses = [trial["status"] for trial in json.loads(capsys.readouterr().out)]
    assert {"ok": 4, "predicted": 4} == {status: statuses.count(status) for status in statuses}
    assert cli.OK == cli.main(["runs", "--resume", new_runs()[0].id, "--budget", "75%", "--json", "--quiet"])
    statuses = [trial["status"] for trial in json.loads(capsys.readouterr().out)]
    assert {"ok": 6, "predicted": 2} == {status: statuses.count(status) for status in statuses}
    assert cli.OK == cli.main([*words, "--estimate", "--json"])
    report = json.loads(capsys.readouterr().out)

    assert report["seconds"] > 0
    assert [1, 2, 4, 8] == [row["batch_size"] for row in report["best"]]
    assert cli.INVALID == cli.main([*words, "--budget", "soon"])
    assert cli.INVALID == cli.main([*words, "--predictor", "some.safetensors"])


def test_selfcheck_prints_a_table_and_json(new_runs: NewRuns, capsys: pytest.CaptureFixture[str]) -> None:
    """`selfcheck` prints the figures of a new run or of an earlier one, as a table or as JSON."""
    words = ["--groups", "2", "-r", "12", "--threads", "1", "-c", "identity"]
    measured = cli.main(["selfcheck", *words]), capsys.readouterr()
    outcome = cli.main(["selfcheck", new_runs()[0].id, "--json"]), capsys.readouterr()
    content = json.loads(outcome[1].out)

    assert (cli.OK, cli.OK) == (measured[0], outcome[0])
    assert "identity against identity" in measured[1].out
    assert "4 of 4 trials" in measured[1].err
    assert (2, 12, new_runs()[0].id, None) == (
        content["groups"],
        content["samples"],
        content["run"],
        content["contended"],
    )
    assert f"{content['smallest_speedup']:.4f}" in measured[1].out


def shell(state_dir: Path, *words: str, **options: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "NGBKIT_STATE_DIR": str(state_dir)}
    command = [sys.executable, "-m", "ngbkit", *words]
    return subprocess.Popen(command, env=environment, text=True, stderr=subprocess.PIPE, **options)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_keeps_what_was_measured(
    new_runs: NewRuns, mlp_file: Path, tmp_path: Path, state_dir: Path, number: signal.Signals
) -> None:
    """Three in a row are one: it exits with 128 and the signal, says how to go on, and writes the file."""
    out = tmp_path / "out.nc"
    words = ["run", str(mlp_file), "-c", f"identity,{SLOW}", "-b", "1:8", "-r", "20", "-o", str(out)]
    with shell(state_dir, *words, stdout=subprocess.DEVNULL) as process:
        wait_until(lambda: any(summary.statuses.get("ok", 0) >= 2 for summary in new_runs()))
        for _ in range(3):
            process.send_signal(number)
        _, message = process.communicate()
    statuses = list(storage.load(out)["status"].values.ravel())

    assert 128 + number == process.returncode
    assert f"Resume with: `ngbkit runs --resume {new_runs()[0].id}`" in message
    assert "Traceback" not in message
    assert {"ok", "pending"} == set(statuses)


def test_a_reader_that_leaves_is_no_error(state_dir: Path) -> None:
    """A closed pipe ends the command without a traceback, with the exit status of a broken pipe."""
    with shell(state_dir, "compilers", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        message = process.stderr.read() if process.stderr else ""

    assert (cli.BROKEN_PIPE, "") == (process.returncode, message)
