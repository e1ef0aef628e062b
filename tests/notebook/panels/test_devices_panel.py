"""The panel of devices starts and stops engines, and does not disturb a device that measures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from patience import wait_until

from ngbkit import runs
from ngbkit.api import Sweep
from ngbkit.cluster import engines
from ngbkit.notebook.panels import DevicesPanel


@pytest.fixture
def panel() -> Iterator[DevicesPanel]:
    """A panel of devices without engines."""
    engines.close()
    panel = DevicesPanel()
    yield panel
    panel.close()


def press(panel: DevicesPanel, name: str) -> None:
    """Press a button, and wait until its action is complete."""
    panel.buttons[name].click()
    wait_until(lambda: not panel._in_progress)


def test_a_device_without_an_engine_is_listed(panel: DevicesPanel) -> None:
    """The table says that it has none."""
    assert "cpu" in panel.table.value
    assert ">none<" in panel.table.value


def test_an_engine_is_started_checked_and_stopped(panel: DevicesPanel) -> None:
    """The panel shows its load, its memory and its log."""
    panel.buttons["Start"].click()
    wait_until(lambda: ">ready<" in panel.table.value)
    wait_until(lambda: "GB" in panel.table.value)

    assert {"cpu"} == set(engines.find_running())
    wait_until(lambda: "<pre" in panel.engine_log.value)

    press(panel, "Stop")

    assert {} == engines.find_running()
    wait_until(lambda: ">none<" in panel.table.value)


def test_a_restart_gives_another_engine(panel: DevicesPanel) -> None:
    """The first engine has ended."""
    first = engines.acquire()
    press(panel, "Restart")

    (second,) = engines.find_running().values()
    assert second is not first
    assert not first.is_alive()


def test_a_device_that_measures_shows_its_progress_and_is_not_contended(panel: DevicesPanel, mlp_file: Path) -> None:
    """Check does nothing until the run has ended, and says so."""
    run = runs.start(Sweep([str(mlp_file)], ["identity"], range(1, 60), repeats=3))
    wait_until(lambda: run.progress.done > 0)
    panel.refresh()

    assert "of 59 trials" in panel.table.value
    assert [run] == runs.live()

    press(panel, "Check")

    assert "cpu is measuring; check it after its run" in panel.message.value
    run.stop()
    run.wait()
    assert [] == runs.live()


def test_errors_are_reported(panel: DevicesPanel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the text of the error."""
    monkeypatch.setenv("NGBKIT_STATE_DIR", "/proc/nowhere")
    press(panel, "Start")

    assert "nowhere" in panel.message.value


def test_the_table_survives_an_error(panel: DevicesPanel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The panel shows an error in place of the table until a refresh succeeds."""
    with monkeypatch.context() as patch:
        patch.setattr("ngbkit.notebook.panels.devices.list_devices", lambda: 1 / 0)
        wait_until(lambda: "unexpected error: ZeroDivisionError" in panel.table.value)

    wait_until(lambda: ">none<" in panel.table.value)


def test_a_check_without_an_engine_names_the_button_to_press(panel: DevicesPanel) -> None:
    """The message of a check without an engine names the button to press."""
    press(panel, "Check")

    assert "cpu has no engine; press Start" in panel.message.value


def test_the_magic_shows_it(shell: InteractiveShell) -> None:
    """The magic ``%ngpanel devices`` returns the panel of devices."""
    panel = shell.run_line_magic("ngpanel", "devices")
    panel.close()

    assert isinstance(panel, DevicesPanel)
