"""The display of a run, while it measures and at its end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import synthetic
from drawn import measured, sweep
from IPython.core.interactiveshell import InteractiveShell
from patience import wait_until

from ngbkit import runs
from ngbkit.api import Sweep
from ngbkit.commands.answer import Answer
from ngbkit.dataset import storage
from ngbkit.notebook import display
from ngbkit.runs.progress import Progress
from ngbkit.sweep.journal import Journal


class Recorder:
    """A fake display of a kernel: records each output, and each update of it."""

    def __init__(self) -> None:
        self.outputs: list[tuple[str, str]] = []

    def display(self, content: Any) -> None:
        self.outputs.append(("new", content._repr_html_()))

    def update(self, content: Any) -> None:
        self.outputs.append(("update", content._repr_html_()))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr("IPython.display.DisplayHandle", lambda: recorder)
    return recorder


def test_a_kernel_updates_one_output(recorder: Recorder, mlp_file: Path) -> None:
    """The table of results replaces the line of progress."""
    kernel: Any = SimpleNamespace(kernel=object())
    run = runs.start(Sweep([str(mlp_file)], ["identity", "onnxruntime"], repeats=3))
    display.follow(run, kernel)
    run.wait()
    wait_until(lambda: run.id in recorder.outputs[-1][1])
    first, last = recorder.outputs[0], recorder.outputs[-1]

    assert ["new"] == [kind for kind, _ in recorder.outputs if kind == "new"]
    assert first[1].startswith("<progress ")
    assert "of 2 trials" in first[1]
    assert ("update", True) == (last[0], "<table " in last[1])
    assert run.id in last[1]


def test_a_run_that_has_ended_is_displayed_once(
    recorder: Recorder, mlp_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that has ended is displayed once, without updates."""
    kernel: Any = SimpleNamespace(kernel=object())
    run = runs.start(Sweep([str(mlp_file)], repeats=3))
    run.wait()
    contents: list[Any] = []
    monkeypatch.setattr("IPython.display.display", contents.append)
    display.follow(run, kernel)

    assert [] == recorder.outputs
    assert [True] == ["<table " in content._repr_html_() for content in contents]


@pytest.mark.parametrize(("simple", "lines"), [(True, 1), (False, 2)])
def test_a_run_in_the_background_leaves_the_prompt_alone(
    mlp_file: Path, capfd: pytest.CaptureFixture[str], simple: bool, lines: int
) -> None:
    """A terminal prints a line now, and one at the end if it can print above the prompt; it draws no bar."""
    terminal: Any = SimpleNamespace(simple_prompt=simple)
    run = runs.start(Sweep([str(mlp_file)], repeats=3))
    display.follow(run, terminal)
    run.wait()
    # The last line is printed by the thread of the run, and the streams are read when it writes no more.
    wait_until(lambda: f"ngbkit-run-{run.id}" not in {thread.name for thread in threading.enumerate()})
    output = capfd.readouterr()

    assert (lines, "") == (output.out.count(f"run {run.id}: "), output.err)


def test_a_run_is_displayed_as_the_value_of_a_cell(
    shell: InteractiveShell, mlp_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cell displays a run as a table, or as its repr after the extension is unloaded."""
    run = runs.start(Sweep([str(mlp_file)], repeats=3))
    run.wait()
    shell.user_ns["run"] = run
    shell.run_cell("run")
    displayed = capsys.readouterr().out
    shell.run_line_magic("unload_ext", "ngbkit")
    shell.run_cell("run")
    plain = capsys.readouterr().out
    shell.run_line_magic("load_ext", "ngbkit")

    assert "throughput (samples/s)" in displayed
    assert f"<Run {run.id} finished: 1 of 1 trials>" in plain
    assert "throughput" not in plain


def test_the_table_begins_with_speedups() -> None:
    """The table shows speed-ups with their intervals first, then throughput."""
    progress = Progress(done=4, total=4, statuses={"ok": 4}, share=1.0, text="", remaining_s=None)
    run: Any = SimpleNamespace(
        id="1",
        state="finished",
        ended=True,
        progress=progress,
        failures=list,
        warnings={},
        known_trials={"cpu": "all 4 trials are known from 18:31"},
        is_replay=False,
    )
    snapshot = display.Snapshot(run, measured(), 1.0)
    for text in (snapshot._repr_html_(), repr(snapshot)):
        speedups, _, rates = text.partition("throughput (samples/s)")

        assert re.search(r"speed-up over identity.* \d\.\d+ (± \d|\(\d)", speedups.replace(">", "> "), re.DOTALL)
        assert "openvino" in rates
        assert "cpu: all 4 trials are known from 18:31" in rates


def test_commands_in_a_remark_are_code() -> None:
    """No line break splits them, and what a user wrote stays text."""
    progress = Progress(done=1, total=4, statuses={"ok": 1}, share=0.2, text="", remaining_s=None)
    run: Any = SimpleNamespace(
        id="1",
        state="running",
        ended=False,
        progress=progress,
        failures=list,
        warnings={},
        known_trials={},
        message="",
        error=None,
    )
    snapshot = display.Snapshot(run, None, 1.0, notices=("Measure <b>: `%ngruns --resume 1`.",))

    assert 'Measure &lt;b&gt;: <code style="white-space: nowrap">%ngruns --resume 1</code>.' in snapshot._repr_html_()


def test_a_callback_at_the_end_runs_once(mlp_file: Path) -> None:
    """A callback at the end runs once, whether the run ends later or has ended."""
    ended: list[str] = []
    run = runs.start(Sweep([str(mlp_file)], repeats=3))
    display.call_at_end(run, lambda run: ended.append(f"later {run.ended}"))
    run.wait()
    wait_until(lambda: ended)
    display.call_at_end(run, lambda run: ended.append(f"before {run.ended}"))

    assert ["later True", "before True"] == ended


def test_updates_are_at_most_five_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst of events is one update; the end is always displayed, once."""
    now, updates = [100.0], []
    monkeypatch.setattr(display, "time", SimpleNamespace(monotonic=lambda: now[0]))
    listen = display._throttle(lambda run: updates.append(now[0]))
    run: Any = SimpleNamespace(ended=False)
    for moment in (100.0, 100.1, 100.15, 100.21, 100.3):
        now[0] = moment
        listen(run)
    run.ended = True
    listen(run)
    listen(run)

    assert [100.0, 100.21, 100.3] == updates


def test_an_empty_list_is_a_sentence() -> None:
    """The sentence replaces the table."""
    listing = Answer.of_rows([], "No run yet.")

    assert ("No run yet.", "<p>No run yet.</p>") == (repr(listing), listing._repr_html_())


@pytest.mark.parametrize("program", [("-m", "IPython", "--no-banner", "--colors=nocolor"), ()])
def test_a_terminal_without_the_signs_of_tables_shows_others(program: tuple[str, ...], tmp_path: Path) -> None:
    """A terminal with the locale C shows tables in ASCII."""
    storage.save(measured(batch_sizes=[1]), tmp_path / "a.nc")
    lines = f"import ngbkit\nds = ngbkit.load({str(tmp_path / 'a.nc')!r})\nprint(ds.ngb.table('speedup'))"
    code = f"%load_ext ngbkit\n{lines}\nprint(chr(0xb1))" if program else lines
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "HOME": str(tmp_path)}
    command = [sys.executable, *program, "-c", code]
    output = subprocess.run(command, env=environment, capture_output=True, check=True).stdout.decode("ascii")

    assert 1 == output.count("\nworkload  batch_size  identity")
    assert bool(program) == output.endswith("\n+-\n")


class PartialRun:
    """A fake run with some of its trials recorded, and others in flight."""

    def __init__(self, folder: Path, total: int) -> None:
        self.sweep, self.folder, self.id = sweep(), folder, "1"
        self.state, self.ended, self.warnings, self.is_replay = "running", False, {}, False
        self.done, self.total = 0, total
        self.interim: dict[str, Any] = {}
        self.known_trials: dict[str, str] = {}

    @property
    def progress(self) -> Progress:
        share = self.done / self.total
        return Progress(done=self.done, total=self.total, statuses={}, share=share, text="", remaining_s=None)


@pytest.mark.parametrize(("total", "count"), [(4, 2), (1000, 0)])
def test_the_table_so_far_grows_with_the_results(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, total: int, count: int
) -> None:
    """The display computes the table anew after a look at trials in flight, or a record, and not of many trials."""
    monkeypatch.setattr(display.time, "monotonic", clock := Mock(return_value=100.0))
    run = PartialRun(tmp_path, total)
    records = synthetic.make_records(run.sweep)
    followed = display.RunDisplay(SimpleNamespace(kernel=object()))  # type: ignore[arg-type]
    with Journal(tmp_path / "journal.sqlite") as journal:
        for step in range(6):
            if step == 1:
                run.interim = {record.trial_id: record for record in records[:2]}
            if step == 3:
                journal.finish(records[:2])
                run.done, run.interim = 2, {}
            clock.return_value += 0.6
            followed.show(run)  # type: ignore[arg-type]
    tables = [html.partition("<table")[2] for _, html in recorder.outputs]

    assert [False] + [count > 0] * 5 == ["speed-up over identity, so far" in table for table in tables]
    assert [count > 0] * 5 == ["pending" in table for table in tables[1:]]
