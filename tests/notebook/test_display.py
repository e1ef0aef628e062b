"""How a run is drawn: as it goes on, and at its end."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from patience import wait_until

from ngbkit import runs
from ngbkit.notebook import display
from ngbkit.sweep.grid import Sweep


class Recorder:
    """Stands for a kernel's display: what was put there, and what replaced it."""

    def __init__(self) -> None:
        self.drawn: list[tuple[str, str]] = []

    def display(self, moment: Any) -> None:
        self.drawn.append(("new", moment._repr_html_()))

    def update(self, moment: Any) -> None:
        self.drawn.append(("again", moment._repr_html_()))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    found = Recorder()
    monkeypatch.setattr("IPython.display.DisplayHandle", lambda: found)
    return found


def test_a_kernel_draws_in_one_place(recorder: Recorder, mlp_file: Path) -> None:
    """A line of progress, replaced by the table of results."""
    kernel: Any = SimpleNamespace(kernel=object())
    run = runs.start(Sweep([str(mlp_file)], ["identity", "onnxruntime"], repeats=3))
    display.follow(run, kernel)
    run.wait()
    wait_until(lambda: "<table" in recorder.drawn[-1][1])
    first, last = recorder.drawn[0], recorder.drawn[-1]

    assert ["new"] == [how for how, _ in recorder.drawn if how == "new"]
    assert first[1].startswith("<progress ")
    assert "of 2 trials" in first[1]
    assert ("again", True) == (last[0], last[1].startswith("<table "))
    assert run.id in last[1]


def test_a_run_that_has_ended_is_drawn_once(recorder: Recorder, mlp_file: Path) -> None:
    """There is nothing to follow."""
    kernel: Any = SimpleNamespace(kernel=object())
    run = runs.start(Sweep([str(mlp_file)], repeats=3))
    run.wait()
    display.follow(run, kernel)

    assert ["new"] == [how for how, _ in recorder.drawn]


def test_a_run_is_drawn_wherever_it_is_the_value_of_a_cell(
    shell: InteractiveShell, mlp_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its repr says less; unloading leaves the repr."""
    run = runs.start(Sweep([str(mlp_file)], repeats=3))
    run.wait()
    shell.user_ns["run"] = run
    shell.run_cell("run")
    drawn = capsys.readouterr().out
    shell.run_line_magic("unload_ext", "ngbkit")
    shell.run_cell("run")
    plain = capsys.readouterr().out
    shell.run_line_magic("load_ext", "ngbkit")

    assert "throughput (samples/s)" in drawn
    assert f"<Run {run.id} finished: 1 of 1 trials>" in plain
    assert "throughput" not in plain


def test_acting_at_the_end_happens_once(mlp_file: Path) -> None:
    """Whether the run ends later or has ended before."""
    ended: list[str] = []
    run = runs.start(Sweep([str(mlp_file)], repeats=3))
    display.when_ended(run, lambda run: ended.append(f"later {run.ended}"))
    run.wait()
    wait_until(lambda: ended)
    display.when_ended(run, lambda run: ended.append(f"before {run.ended}"))

    assert ["later True", "before True"] == ended


def test_updates_are_at_most_five_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst of events is one update; the end is always shown, once."""
    now, shown = [100.0], []
    monkeypatch.setattr(display, "time", SimpleNamespace(monotonic=lambda: now[0]))
    listen = display._throttled(lambda run: shown.append(now[0]))
    run: Any = SimpleNamespace(ended=False)
    for moment in (100.0, 100.1, 100.15, 100.21, 100.3):
        now[0] = moment
        listen(run)
    run.ended = True
    listen(run)
    listen(run)

    assert [100.0, 100.21, 100.3] == shown


def test_lists_without_rows_say_so() -> None:
    """A sentence stands where a table would."""
    listing = display.Listing([], "There is no run yet.")

    assert ("There is no run yet.", "<p>There is no run yet.</p>") == (repr(listing), listing._repr_html_())
