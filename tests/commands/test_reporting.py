"""The results of a run as text: which tables, in which order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from drawn import measured, sweep, unlike

from ngbkit import cli
from ngbkit.commands import shell
from ngbkit.dataset import storage

SPEEDUP, THROUGHPUT = "speed-up over identity", "throughput (samples/s)"


def test_speedups_come_first() -> None:
    """The shell shows speed-ups, then throughput, or throughput alone if there is no baseline to compare."""
    assert ["speedup", "throughput"] == shell.choose_figures(measured())
    assert ["throughput"] == shell.choose_figures(measured(compilers=["identity"]))
    assert ["throughput"] == shell.choose_figures(measured(compilers=["openvino", "onnxruntime"]))


def test_speedups_need_a_baseline_with_a_result() -> None:
    """The shell omits the table of speed-ups if no baseline was measured."""
    data = measured()
    unmeasured = data["status"].where(data["compiler"] != "identity", "predicted")
    disjoint = data["status"].where((data["compiler"] == "identity") == (data["batch_size"] == 1), "predicted")

    assert ["throughput"] == shell.choose_figures(data.assign(status=unmeasured))
    assert ["throughput"] == shell.choose_figures(data.assign(status=disjoint))
    assert ["speedup", "throughput"] == shell.choose_figures(data.sel(device="cpu", batch_size=1))


def test_unlike_columns_are_printed_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A column of another contract has a speed-up, a mark and a note with --unlike allow alone."""
    file = str(storage.save(unlike(sweep(), "openvino"), tmp_path / "out.nc"))
    note = "openvino †: compared although unlike, precision bf16 instead of f32"
    cli.main(["show", file])
    masked = capsys.readouterr().out
    cli.main(["show", file, "--unlike", "allow"])
    allowed = capsys.readouterr().out
    cli.main(["compare", file, file, "--all", "--unlike", "allow"])
    compared = capsys.readouterr().out

    assert "openvino: not compared" in masked
    assert "openvino †" not in masked
    assert note in allowed
    assert "openvino †" in compared


def test_show_answers_as_a_run_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The verdict, then speed-ups with their intervals, then throughput with --all; or the one figure that is named."""
    file = str(storage.save(measured(), tmp_path / "out.nc"))
    outputs = []
    for options in ([], ["--all"], ["--figure", "throughput"]):
        assert cli.OK == cli.main(["show", file, *options])
        outputs.append(capsys.readouterr().out)

    assert re.search(rf"^(Fastest|Not conclusive).*{SPEEDUP}\n.* \d\.\d+ (± \d|\(\d)", outputs[0], re.DOTALL)
    assert [(1, 0), (1, 1), (0, 1)] == [(output.count(SPEEDUP), output.count(THROUGHPUT)) for output in outputs]


def test_no_sentence_is_printed_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Marks are explained once, however many tables have them."""
    data = measured()
    contended = data.assign(contended=data["latency"].notnull().astype(int))
    cli.main(["show", str(storage.save(contended, tmp_path / "out.nc")), "--all"])
    sentences = [line for line in capsys.readouterr().out.splitlines() if line.count(" ") > 4 and "  " not in line]

    assert any(line.startswith("? not conclusive") for line in sentences)
    assert len({*sentences}) == len(sentences)
