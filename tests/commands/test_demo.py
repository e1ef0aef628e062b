"""The demo: one screen with the verdict and the first table, where its time went, and a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ngbkit import cli
from ngbkit.commands import arguments, demo
from ngbkit.commands.parser import build_parser, parse
from ngbkit.commands.run import COMMAND as RUN
from ngbkit.commands.shell import ShellCall
from ngbkit.dataset import storage
from ngbkit.metrics import tables
from ngbkit.runs import Run


def test_its_sweep_is_small_and_has_the_baseline() -> None:
    """The demo's sweep has two networks and batch size 1, to which scaling metrics refer."""
    sweep = arguments.to_sweep(parse(build_parser("ngbkit run", RUN.shell_arguments), demo.SWEEP.split()))

    assert 12 == len(sweep)
    assert "identity" in sweep.compilers
    assert 1 in sweep.batch_sizes


@pytest.mark.guard
def test_demo_prints_one_screen_and_keeps_a_page(
    mlp_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command that it names prints the other tables. An earlier demo is replaced, for its files are its own."""
    monkeypatch.setattr(demo, "SWEEP", f"{mlp_file} -b 1,2 -c identity,onnxruntime")
    (tmp_path / "demo.nc").write_text("an older one")
    code = cli.main(["demo", "-r", "3", "-o", str(tmp_path), "--quiet"])
    printed = capsys.readouterr().out
    cli.main(["show", str(tmp_path / "demo.nc"), "--all"])
    rest = capsys.readouterr().out
    page = (tmp_path / "demo.html").read_text()
    content = storage.load(tmp_path / "demo.nc")
    titles = [tables.compact(content, figure).attrs["title"] for figure in ("speedup", "throughput", "ase", "bsr")]

    assert cli.OK == code
    assert titles[:1] == [title for title in titles if title in printed]
    assert titles == [title for title in titles if title in rest]
    assert f"More: `ngbkit show {tmp_path / 'demo.nc'} --all` prints throughput, ase, bsr" in printed
    assert len(printed.splitlines()) <= 24
    assert printed.startswith(("Fastest", "Not conclusive"))
    assert re.search(r"This took \d+ s: \d+ s of timed calls", printed)
    assert (1, 1, 2, 2, 3) == content["latency"].shape
    assert "vega" in page
    assert 'src="http' not in page


def test_a_demo_that_is_stopped_keeps_its_dataset(
    mlp_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A demo that is stopped saves its dataset."""

    def stop(_shell: ShellCall, run: Run) -> None:
        run.stop()
        run.wait()
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "SWEEP", f"{mlp_file} -b 1 -c identity")
    monkeypatch.setattr(ShellCall, "wait", stop)

    assert cli.INTERRUPTED == cli.main(["demo", "-r", "3", "-o", str(tmp_path), "--quiet"])
    assert {"pending"} == set(storage.load(tmp_path / "demo.nc")["status"].values.ravel())
