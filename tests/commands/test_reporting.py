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
    """Speed-ups with their intervals, then throughput, then what is conclusive; or the one figure that is named."""
    file = storage.save(measured(), tmp_path / "out.nc")
    codes = [cli.main(["show", str(file)]), cli.main(["show", str(file), "--figure", "throughput"])]
    printed = capsys.readouterr().out
    speedups, *rest = printed.split(THROUGHPUT)

    assert [cli.OK, cli.OK] == codes
    assert re.search(rf"{SPEEDUP}\n.* \d\.\d+ (± \d|\(\d)", speedups, re.DOTALL)
    assert 2 == len(rest)
    assert SPEEDUP not in "".join(rest)
