"""The section of the devices starts, deploys to and self-checks them, and disturbs none that measures."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path

import devicefiles
import pytest
import selfchecks
from IPython.core.interactiveshell import InteractiveShell
from patience import wait_until

from ngbkit import runs
from ngbkit.api import Sweep
from ngbkit.cluster import engines
from ngbkit.cluster.launchers.base import Starter
from ngbkit.errors import DeviceError
from ngbkit.fleet.deployment import deploy
from ngbkit.panels.devices import DevicesSection
from ngbkit.panels.page import Page
from ngbkit.runs import selfcheck
from ngbkit.runs.run import live


@pytest.fixture
def page() -> Iterator[Page]:
    """A page that shows the section of the devices, without engines."""
    engines.close()
    page = Page()
    section = DevicesSection(page)
    section.begin()
    yield page
    section.close()


def read(page: Page) -> str:
    """Read the text of the table, without its elements."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page.parts["devices"])).split())


def wait_for(page: Page, text: str) -> None:
    """Wait until the table has a text; the failure shows what it has."""
    try:
        wait_until(lambda: text in read(page))
    except AssertionError as error:
        raise AssertionError(f"{text!r} is not in {read(page)!r}") from error


def use_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: Page) -> None:
    """Add the device `orin` behind ssh."""
    devicefiles.write(devicefiles.make_project(tmp_path, monkeypatch) / "devices.toml")
    wait_for(page, "orin")


def test_a_device_without_an_engine_is_listed(page: Page) -> None:
    """The table says that it has none, and names each button for screen readers; no button deploys to this machine."""
    labels = re.findall('aria-label="([^"]*cpu)"', page.parts["devices"])

    assert "cpu this machine's CPU" in read(page)
    assert " none " in read(page)
    assert ["Start the engine of cpu", "Restart the engine of cpu", "Self-check cpu", "Log of cpu"] == labels
    assert "Deploy" not in read(page)


def test_an_engine_is_started_checked_and_stopped(page: Page) -> None:
    """The row shows the load and the memory of the device, and on demand the log of its engine."""
    page.act("device-start", "cpu")

    assert "starting…" in read(page)
    wait_for(page, "ready free")
    assert {"cpu"} == set(engines.find_running())
    assert " GB " in read(page)

    page.act("device-log", "cpu")

    assert "engine, at" in read(page)

    page.act("device-stop", "cpu")
    wait_for(page, " none ")

    assert {} == engines.find_running()


def test_a_restart_gives_another_engine(page: Page) -> None:
    """The first engine has ended."""
    first = engines.acquire()
    page.act("device-restart", "cpu")
    wait_for(page, "ready free")

    (second,) = engines.find_running().values()
    assert second is not first
    assert not first.is_alive()


def test_a_start_is_given_up(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that is slow to start shows why, and its button stops the start."""

    def acquire(label: str, starter: Starter) -> None:
        starter.report("job 7 waits in the queue")
        wait_until(starter.stopped)
        raise InterruptedError

    monkeypatch.setattr(engines, "acquire", acquire)
    page.act("device-start", "cpu")
    wait_for(page, "job 7 waits in the queue")
    page.act("device-stop", "cpu")

    wait_for(page, "The start was stopped.")


def test_a_device_that_measures_shows_its_progress_and_is_not_contended(page: Page, mlp_file: Path) -> None:
    """The buttons of the engine do nothing until the run has ended, and say so."""
    run = runs.start(Sweep([str(mlp_file)], ["identity"], range(1, 60), repeats=3))
    wait_for(page, "of 59 trials")
    page.act("device-stop", "cpu")

    assert "cpu is measuring: wait for the end of its run, or stop it." in read(page)
    assert [run] == live()
    run.stop()
    run.wait()


def test_errors_are_in_the_row(page: Page) -> None:
    """The row has the sentence of an error until the next step; an unknown device is named in the message."""
    page.act("device-check", "cpu")
    wait_for(page, "cpu has no engine: start it first.")
    page.act("device-stop", "cpu")
    page.act("device-start", "cqu")

    assert "start it first" not in read(page)
    assert "Did you mean cpu?" in page.parts["message"]


def test_the_table_survives_an_error(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """The section shows an error in place of the table until a refresh succeeds."""
    with monkeypatch.context() as patch:
        patch.setattr("ngbkit.panels.devices.devices.load", lambda: 1 / 0)
        wait_for(page, "unexpected error: ZeroDivisionError")

    wait_for(page, " none ")


def test_a_deployment_shows_its_output(page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line of the output is in the row, all lines are in the log, and an error is in the row."""
    ended = []

    def install(device: object, *, report: Callable[[str], None]) -> None:
        report("Collecting numpy")
        report("Installing numpy")
        wait_until(lambda: ended)
        raise DeviceError("device orin: its disk is full")

    monkeypatch.setattr(deploy, "deploy", install)
    use_devices(tmp_path, monkeypatch, page)
    page.act("device-deploy", "orin")
    wait_for(page, "deploying… Installing numpy")
    page.act("device-log", "orin")

    assert "Collecting numpy Installing numpy" in read(page)
    ended.append(True)
    wait_for(page, "device orin: its disk is full")


@pytest.fixture
def selfcheck_start(mlp_file: Path, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """An event for which each self-check waits; it then measures so many trials that it ends only when stopped."""
    start = threading.Event()

    def measure(*, device: str, wait: Callable[[runs.Run], object]) -> None:
        start.wait()
        wait(runs.start(Sweep([str(mlp_file)], ["identity"], range(1, 1000), repeats=3, devices=[device])))
        selfcheck.store.save(selfchecks.make())

    monkeypatch.setattr(selfcheck, "run", measure)
    return start


def test_a_selfcheck_is_run_and_stopped(page: Page, selfcheck_start: threading.Event) -> None:
    """The row shows its progress; a stopped one is not stored, and the row says how to resume it."""
    latest = selfcheck.latest()  # modules share a state folder
    selfcheck_start.set()
    page.act("device-selfcheck", "cpu")
    wait_for(page, "self-check… ")
    wait_for(page, "of 999 trials")
    page.act("device-stop-selfcheck", "cpu")
    wait_for(page, "Resume with: `%ngruns --resume")

    assert latest == selfcheck.latest()
    assert [] == live()


def test_a_selfcheck_is_stopped_before_its_run_starts(page: Page, selfcheck_start: threading.Event) -> None:
    """Its run stops as soon as it starts; another click stops nothing, and starts no other self-check."""
    latest = selfcheck.latest()
    page.act("device-selfcheck", "cpu")

    assert 'aria-label="Stop self-check of cpu"' in page.parts["devices"]

    page.act("device-stop-selfcheck", "cpu")
    selfcheck_start.set()
    wait_for(page, "Resume with: `%ngruns --resume")
    page.act("device-stop-selfcheck", "cpu")

    assert latest == selfcheck.latest()
    assert "self-check…" not in read(page)


def test_the_latest_selfcheck_is_in_words(page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row says whether the machine is fit, or why it is not; a device elsewhere has its own self-check."""
    selfcheck.store.save(selfchecks.make())
    busy = replace(selfchecks.NOISE, contended_share=0.38, drift=0.53)
    selfcheck.store.save(selfchecks.make("orin", chip="Orin", quiet=busy))
    use_devices(tmp_path, monkeypatch, page)
    local, _, remote = read(page).partition("orin")

    assert "fit: speed-ups from 1.009 on show" in local
    assert "ssh host orin Orin none – – – not fit 38 % of the samples were contended the latency moved" in remote


def test_a_hidden_section_sends_nothing(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that is unchanged, or hidden, is not sent again."""
    messages: list[object] = []
    page.flush()
    monkeypatch.setattr(page, "send", messages.append)
    page.act("device-log", "cpu")
    page.flush()

    assert 1 == len(messages)


def test_the_magic_shows_it(shell: InteractiveShell) -> None:
    """The magic ``%ngpanel devices`` returns a page with the devices."""
    page = shell.run_line_magic("ngpanel", "devices")
    devices = page.parts["devices"]
    page.close()

    assert "cpu" in devices
