"""The sweep panel in a real shell: it composes, runs, stops and resumes sweeps."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from patience import wait_until

from ngbkit import figures, runs
from ngbkit.api import Sweep
from ngbkit.figures import renderer
from ngbkit.notebook.panels import SweepPanel, grid, live, sweep
from ngbkit.notebook.panels.form import PLACEHOLDER_LENGTH, Form


@pytest.fixture
def panel(shell: InteractiveShell, mlp_file: Path) -> SweepPanel:
    """A panel with a small network."""
    panel = SweepPanel()
    wait_until(lambda: bool(panel.form.search.options))
    panel.form.networks.value = [str(mlp_file)]
    for name, checkbox in panel.form.compilers.items():
        checkbox.value = name in ("identity", "onnxruntime")
    panel.form.repeats.value = "5"
    return panel


def test_it_shows_its_line(panel: SweepPanel, mlp_file: Path) -> None:
    """The button copies the same text; below is the number of trials."""
    panel.form.batch_sizes.value = "1,4"

    assert f"%ngbench {mlp_file} -c identity,onnxruntime -b 1,4 -r 5 -o ds" == panel.copy.text
    assert panel.outlook.value.startswith("4 trials in 2 groups")


def test_a_terminal_shows_a_sentence(panel: SweepPanel) -> None:
    """A terminal without widgets shows a sentence in place of the panel."""
    text = panel._repr_mimebundle_()["text/plain"]

    assert text.startswith("A panel needs a notebook with widgets, such as JupyterLab.")
    assert text.endswith("can do.")


def test_placeholders_are_short_enough_to_be_read(panel: SweepPanel) -> None:
    """A test in a browser compares the longest with the width of its field."""
    texts = [
        child.placeholder
        for row in panel.form.children
        for child in getattr(row, "children", (row,))
        if getattr(child, "placeholder", "").strip("\u200b")
    ]

    assert len(texts) > 6
    assert [] == [text for text in texts if len(text) > PLACEHOLDER_LENGTH]


def test_an_invalid_sweep_cannot_run(panel: SweepPanel) -> None:
    """The reason replaces the number of trials."""
    panel.form.batch_sizes.value = "none"

    assert panel.run.disabled
    assert "" == panel.copy.text
    assert "batch size" in panel.outlook.value

    panel.form.batch_sizes.value = "1"

    assert not panel.run.disabled


def test_unavailable_compilers_are_disabled_with_their_reason(panel: SweepPanel) -> None:
    """An unavailable compiler is disabled, and the panel shows the reason."""
    panel.form.show_compilers(
        [
            {"compiler": "tvm", "available": False, "missing": "apache-tvm is not installed"},
            {"compiler": "identity", "available": True, "missing": ""},
        ]
    )

    assert panel.form.compilers["tvm"].disabled
    assert "tvm: apache-tvm is not installed" in panel.form.reasons.value
    assert "apache-tvm is not installed" == panel.form.compilers["tvm"].tooltip
    assert panel.form.reasons not in panel.form.children
    assert panel.form.reasons in panel.children
    assert "tvm" not in panel.form.line.compilers


def test_a_run_is_displayed_and_binds_its_dataset(panel: SweepPanel, shell: InteractiveShell) -> None:
    """Bars, signs and a chart fill in; at the end the panel shows the verdict, and the variable is bound."""
    panel.run.click()
    assert panel.run.disabled
    assert not panel.stop.disabled

    wait_until(lambda: "has ended" in panel.message.value)

    assert ["identity", "onnxruntime"] == shell.user_ns["ds"]["compiler"].values.tolist()
    assert "●" in panel.live.trials.value
    assert "○ pending" in panel.live.trials.value
    assert renderer.MIME in panel.live.chart.outputs[0]["data"]
    assert "<p>" in panel.live.verdict.value
    assert "2 of 2" in panel.live.bars.value
    assert (False, True, True) == (panel.run.disabled, panel.stop.disabled, panel.resume.disabled)


def test_a_run_is_stopped_and_resumed(panel: SweepPanel, shell: InteractiveShell) -> None:
    """Stop keeps the measurements, and Resume measures the rest."""
    panel.form.batch_sizes.value = "1:10"
    panel.run.click()
    run = panel.active
    assert run is not None
    wait_until(lambda: run.progress.done > 1)

    panel.stop.click()

    assert "stopping" == run.state
    wait_until(lambda: "was stopped" in panel.message.value)
    assert not panel.resume.disabled

    panel.resume.click()
    wait_until(lambda: "has ended" in panel.message.value)

    assert 10 == shell.user_ns["ds"].sizes["batch_size"]
    assert {"ok"} == set(shell.user_ns["ds"]["status"].values.ravel())


def test_a_new_panel_offers_to_resume_an_unfinished_run(shell: InteractiveShell, mlp_file: Path) -> None:
    """A new panel offers to resume an unfinished run."""
    run = runs.start(Sweep([str(mlp_file)], ["identity"], range(1, 60), repeats=3))
    wait_until(lambda: run.progress.done > 0)
    run.stop()
    run.wait()

    panel = SweepPanel()

    assert run.id in panel.message.value
    assert not panel.resume.disabled


def test_an_error_of_the_magic_is_shown(panel: SweepPanel, tmp_path: Path) -> None:
    """The file of a network may be deleted after it was picked."""
    panel.form.networks.value = [str(tmp_path / "gone.py")]

    panel.run.click()

    assert "gone.py" in panel.message.value
    assert panel.active is None


def test_a_chart_that_fails_ends_no_run(
    panel: SweepPanel, shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The panel shows the error in its place, with a traceback to report; the results are bound, and Run is back."""
    monkeypatch.setattr(figures, "overview", lambda data: 1 / 0)
    panel.run.click()
    wait_until(lambda: "has ended" in panel.message.value)

    assert {"ok"} == set(shell.user_ns["ds"]["status"].values.ravel())
    assert "unexpected error: ZeroDivisionError: division by zero" in panel.live.verdict.value
    assert "<details>" in panel.live.verdict.value
    assert () == panel.live.chart.outputs
    assert "2 of 2" in panel.live.bars.value
    assert (False, True, True) == (panel.run.disabled, panel.stop.disabled, panel.resume.disabled)


def test_buttons_return_whatever_fails_at_the_end(panel: SweepPanel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that follows a run survives an error in every part that it shows, and in the line."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("out of ideas")

    panel.run.click()
    parts = ((live, "_render_bars"), (live.Live, "_draw_results"), (grid, "to_html"), (sweep, "list_notices"))
    for holder, name in parts:
        monkeypatch.setattr(holder, name, fail)
    wait_until(lambda: "has ended" in panel.message.value)

    assert (False, True) == (panel.run.disabled, panel.stop.disabled)
    assert {True} == {"out of ideas" in part.value for part in (panel.live.bars, panel.live.verdict, panel.outlook)}


def test_a_state_folder_that_cannot_be_used_is_named(
    panel: SweepPanel, mlp_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run shows the remedy, and stays to be pressed after it."""
    monkeypatch.setenv("NGBKIT_STATE_DIR", "/proc/nowhere")
    panel.run.click()

    assert "/proc/nowhere" in panel.message.value
    assert "Set NGBKIT_STATE_DIR to a folder" in panel.message.value
    assert "<details>" not in panel.message.value
    assert not panel.run.disabled


def test_a_faulty_source_of_networks_is_shown(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that lists the choices of the form survives what a plugin raises."""
    monkeypatch.setattr(Form, "show_compilers", lambda *_: 1 / 0)
    panel = SweepPanel()

    wait_until(lambda: "ZeroDivisionError" in panel.form.reasons.value)


def test_a_slow_refresh_never_shows_an_older_line(panel: SweepPanel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe of compilers refreshes the panel from its thread, while the user types."""
    reached, typed = threading.Event(), threading.Event()

    def list_slowly(*_: object, **__: object) -> list[str]:
        if threading.current_thread() is probe:
            reached.set()
            typed.wait(0.2)
        return []

    monkeypatch.setattr(sweep, "list_notices", list_slowly)
    probe = threading.Thread(target=panel.form._on_change)
    probe.start()
    assert reached.wait(60)
    panel.form.batch_sizes.value = "1:8"
    typed.set()
    probe.join()

    assert "-b 1:8 -r 5" in panel.line.value
    assert panel.line.value.count(panel.copy.text) == 1
