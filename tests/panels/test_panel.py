"""The panel in a real shell: it composes, runs, stops and resumes sweeps, and finds its run again."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from cells import fail_cell, run_cell
from drawn import measured, network
from IPython.core.interactiveshell import InteractiveShell
from patience import wait_until

from ngbkit import figures
from ngbkit.errors import UsageError
from ngbkit.panels import Panel, panel
from ngbkit.panels.line import Line
from ngbkit.runs import run_context

CELL = "%ngpanel"


@pytest.fixture
def line(mlp_file: Path) -> Line:
    """The line of a small sweep."""
    return Line(workloads=(str(mlp_file),), compilers=("identity", "onnxruntime"), repeats="5")


@pytest.fixture(autouse=True)
def _cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook, and its cell with the panel."""
    monkeypatch.setattr(run_context, "_find_notebook", lambda _: "/home/me/blocks.ipynb")
    monkeypatch.setattr(run_context, "_find_cell", lambda _: run_context.CELL.get() or CELL)


def open_panel(line: Line | None = None) -> Panel:
    """Open a panel with a line."""
    opened = Panel()
    if line is not None:
        opened.compose.line = line
        opened.compose.refresh()
    return opened


def test_a_terminal_shows_a_sentence(shell: InteractiveShell) -> None:
    """A terminal without widgets shows a sentence in place of the panel."""
    text = open_panel()._repr_mimebundle_()[0]["text/plain"]

    assert text.startswith("A panel needs a notebook with widgets, such as JupyterLab.")
    assert text.endswith("can do.")


def test_a_page_without_widgets_shows_the_remedy_and_the_results(shell: InteractiveShell) -> None:
    """The output that a live panel hides names the packages to install, and has the tables of a dataset."""
    remedy = "pip install jupyterlab_widgets anywidget"
    empty, explorer = Panel(), Panel(measured(network("a")))

    assert [True, True] == [remedy in opened._stored for opened in (empty, explorer)]
    assert [False, True] == ["speed-up" in opened._stored for opened in (empty, explorer)]


def test_without_a_notebook_there_is_no_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python without IPython has the remedy."""
    monkeypatch.setattr(panel, "get_ipython", lambda: None)
    with pytest.raises(UsageError, match="a panel needs a notebook"):
        Panel()


def test_a_run_is_followed_and_read(line: Line, shell: InteractiveShell) -> None:
    """Bar and grid fill in; at the end the variable is bound, and the results are open and stored."""
    opened = open_panel(line)
    opened.act("run")
    running = opened.parts["compose"]
    wait_until(lambda: "speed-up" in opened._stored)

    assert re.search(r'data-click="run"[^>]*disabled', running)
    assert ["identity", "onnxruntime"] == shell.user_ns["ds"]["compiler"].values.tolist()
    assert "has ended; ds is its dataset" in opened.parts["message"]
    assert "2 of 2" in opened.parts["bars"]
    assert 2 == opened.parts["grid-0"].count("●")
    assert re.search(r'data-value="results"[^>]*aria-selected="true"', opened.parts["page"])
    assert "ds.ngb.plot." in opened.parts["figure-code"]
    assert "%ngruns --open" in opened._stored
    assert not re.search(r'data-click="run"[^>]*disabled', opened.parts["compose"])


def test_a_pressed_trial_shows_its_last_lines(line: Line, shell: InteractiveShell) -> None:
    """A trial shows its samples; pressed again it shows nothing."""
    opened = open_panel(line)
    opened.act("run")
    wait_until(lambda: "has ended" in opened.parts["message"])
    trial = re.search(r'data-value="(\w+)"', opened.parts["grid-0"])[1]
    opened.act("trial", trial)

    assert "identity, batch 1 on cpu" in opened.parts["last-lines"]
    assert "samples, median" in opened.parts["last-lines"]
    assert 1 == opened.parts["grid-0"].count('aria-pressed="true"')

    opened.act("trial", trial)

    assert "" == opened.parts["last-lines"]


def test_a_run_is_stopped_found_again_and_resumed(line: Line, shell: InteractiveShell) -> None:
    """Stop keeps the measurements; a panel of the same cell finds the run and its line, and measures the rest."""
    opened = open_panel(replace(line, batch_sizes="1:10"))
    opened.act("run")
    run = opened.watch.run
    wait_until(lambda: run.progress.done > 1)
    opened.act("stop")
    wait_until(lambda: "was stopped" in opened.parts["message"])
    again = open_panel()

    assert run.id in again.parts["message"]
    assert "trials are missing" in again.parts["message"]
    assert opened.compose.line == again.compose.line
    assert "Resume" in again.parts["resume"]

    again.act("resume")
    wait_until(lambda: "has ended" in again.parts["message"])

    assert 10 == shell.user_ns["ds"].sizes["batch_size"]
    assert {"ok"} == set(shell.user_ns["ds"]["status"].values.ravel())


def test_a_notebook_that_is_run_again_measures_nothing(
    line: Line, shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finished run is read again, its variable bound; a panel of another cell finds nothing."""
    opened = open_panel(line)
    opened.act("run")
    wait_until(lambda: "has ended" in opened.parts["message"])
    del shell.user_ns["ds"]
    again = open_panel()

    assert "Nothing was measured again" in again.parts["message"]
    assert 2 == shell.user_ns["ds"]["status"].size
    assert "ds.ngb.plot." in again.parts["figure-code"]
    assert re.search(r'data-value="results"[^>]*aria-selected="true"', again.parts["page"])
    monkeypatch.setattr(run_context, "_find_notebook", lambda _: "/home/me/other.ipynb")
    other = open_panel()

    assert "" == other.parts["message"]
    assert "" == other.parts.get("resume", "")


def test_a_run_of_this_process_is_followed_on(line: Line, shell: InteractiveShell) -> None:
    """A panel that is opened while its run goes on follows it."""
    opened = open_panel(replace(line, batch_sizes="11:60"))  # what another test has measured would end it at once
    opened.act("run")
    run = opened.watch.run
    again = open_panel()

    assert run is again.watch.run

    again.act("stop")
    wait_until(lambda: "was stopped" in again.parts["message"])


def test_an_error_of_the_magic_is_shown(shell: InteractiveShell, tmp_path: Path) -> None:
    """The file of a network may be deleted after it was picked."""
    opened = open_panel()
    opened.compose.line = Line(workloads=(str(tmp_path / "gone.py"),))
    opened.act("run")

    assert "gone.py" in opened.parts["message"]
    assert opened.watch.run is None


def test_results_that_fail_end_no_run(line: Line, shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error stands in its place, the dataset is bound, and Run is back."""
    opened = open_panel(line)
    opened.act("run")
    monkeypatch.setattr(figures, "overview", lambda *_, **__: 1 / 0)
    wait_until(lambda: "ZeroDivisionError" in opened.parts["message"])

    assert {"ok"} == set(shell.user_ns["ds"]["status"].values.ravel())
    assert not re.search(r'data-click="run"[^>]*disabled', opened.parts["compose"])


def test_a_state_folder_that_cannot_be_used_is_named(
    line: Line, shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run shows the remedy, and stays to be pressed after it."""
    opened = open_panel(line)
    monkeypatch.setenv("NGBKIT_STATE_DIR", "/proc/nowhere")
    opened.act("run")

    assert "/proc/nowhere" in opened.parts["message"]
    assert "Set NGBKIT_STATE_DIR to a folder" in opened.parts["message"]
    assert "<details>" not in opened.parts["message"]
    assert not re.search(r'data-click="run"[^>]*disabled', opened.parts["compose"])


def test_a_cell_is_measured_and_found_again(shell: InteractiveShell) -> None:
    """A cell with a network is measured by the magic of cells, and a panel that is opened again has it."""
    source = "import torch\nmodel = torch.nn.Linear(8, 8)\ninput_shape = (8,)\n"
    shell.user_ns["In"] = ["", f"%%ngbench -c identity\n{source}"]
    opened = open_panel(Line(compilers=("identity",), repeats="5"))
    opened.act("network-add", "In[1]")
    opened.act("run")
    wait_until(lambda: "has ended" in opened.parts["message"])
    shell.user_ns["In"] = [""]
    again = open_panel()

    assert ["model"] == shell.user_ns["ds"]["workload"].values.tolist()
    assert source == again.compose.line.source
    assert 'aria-label="remove a cell"' in again.parts["compose"]


def test_a_dataset_of_a_function_is_explored(shell: InteractiveShell) -> None:
    """Magics find datasets and networks where they find texts."""
    shell.user_ns["measured"] = measured
    run_cell(shell, "def show():\n    data = measured()\n    panel = %ngpanel explore data\n    return panel\nshow()")
    error, _ = fail_cell(shell, "%ngpanel explore data")

    assert "'data' is not a dataset" in str(error)
