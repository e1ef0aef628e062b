"""The panel of devices: engines come up and go, and a device that measures is left alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from patience import wait_until

from ngbkit import runs
from ngbkit.cluster import engines
from ngbkit.notebook.panels import DevicesPanel
from ngbkit.sweep.grid import Sweep


@pytest.fixture
def panel() -> Iterator[DevicesPanel]:
    """A panel, before any device has an engine."""
    engines.close()
    made = DevicesPanel()
    yield made
    made.close()


def press(panel: DevicesPanel, name: str) -> None:
    """Press a button, and wait until what it does is done."""
    panel.buttons[name].click()
    wait_until(lambda: not panel._doing)


def test_a_device_without_an_engine_says_so(panel: DevicesPanel) -> None:
    """It is in the table all the same."""
    assert "cpu" in panel.table.value
    assert ">none<" in panel.table.value


def test_an_engine_is_started_looked_at_and_stopped(panel: DevicesPanel) -> None:
    """Its load and its memory are told, and its log is there to be read."""
    panel.buttons["Start"].click()
    wait_until(lambda: ">ready<" in panel.table.value)
    wait_until(lambda: "GB" in panel.table.value)

    assert {"cpu"} == set(engines.running())
    wait_until(lambda: "<pre" in panel.printed.value)

    press(panel, "Stop")

    assert {} == engines.running()
    wait_until(lambda: ">none<" in panel.table.value)


def test_a_restart_is_another_engine(panel: DevicesPanel) -> None:
    """And none is left of the first."""
    first = engines.engine()
    press(panel, "Restart")

    (second,) = engines.running().values()
    assert second is not first
    assert not first.alive()


def test_what_a_device_measures_is_shown_and_it_is_left_alone(panel: DevicesPanel, mlp_file: Path) -> None:
    """A look has to wait until it has ended, and says so."""
    run = runs.start(Sweep([str(mlp_file)], ["identity"], range(1, 60), repeats=3))
    wait_until(lambda: run.progress.done > 0)
    panel.refresh()

    assert "of 59 trials" in panel.table.value
    assert [run] == runs.live()

    press(panel, "Look")

    assert "cpu measures, and is left alone" in panel.message.value
    run.stop()
    run.wait()
    assert [] == runs.live()


def test_what_goes_wrong_is_said(panel: DevicesPanel, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the words of the error."""
    monkeypatch.setenv("NGBKIT_STATE_DIR", "/proc/nowhere")
    press(panel, "Start")

    assert "nowhere" in panel.message.value


def test_a_look_without_an_engine_says_what_to_press(panel: DevicesPanel) -> None:
    """There is nothing to look at."""
    press(panel, "Look")

    assert "cpu has no engine here: Start gives it one" in panel.message.value


def test_the_magic_shows_it(shell: InteractiveShell) -> None:
    """Beside the other panels."""
    panel = shell.run_line_magic("ngpanel", "devices")
    panel.close()

    assert isinstance(panel, DevicesPanel)
