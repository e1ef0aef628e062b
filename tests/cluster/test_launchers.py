"""The launchers start a fleet's engines at once, but not all of them."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from patience import wait_until

from ngbkit import registry
from ngbkit.cluster.devices import Device
from ngbkit.cluster.launchers import base
from ngbkit.cluster.launchers.base import MOST_STARTS, SILENT, Starter
from ngbkit.errors import DeviceError

KEYS = {"local": {}, "ssh": {"host": "far"}, "slurm": {"address": "10.0.0.5"}}
LAUNCHERS = registry.load_all(registry.LAUNCHERS, KEYS.keys() & set(registry.list_names(registry.LAUNCHERS)))


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> base._Starts:
    """The starts of a process of its own."""
    fresh = base._Starts()
    for launcher in LAUNCHERS.values():
        monkeypatch.setattr(launcher, "starts", fresh)
    return fresh


@pytest.mark.parametrize("name", sorted(LAUNCHERS))
def test_starts_are_bounded(name: str, starts: base._Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limited number of engines start at once, and each device gets its turn."""
    running, most, release = [], [], threading.Event()
    device = Device(label="x", launch=name, **KEYS[name])

    def borrow(device: Device, identity: str) -> None:
        running.append(identity)
        most.append(len(running))
        release.wait(30)
        running.remove(identity)
        raise DeviceError("no controller in this test")

    monkeypatch.setattr("ngbkit.cluster.hubs.borrow", borrow)
    monkeypatch.setattr("ngbkit.cluster.shell.Shell.start", lambda *_, **__: FakeProcess())
    with ThreadPoolExecutor(3 * MOST_STARTS) as pool:
        futures = [pool.submit(LAUNCHERS[name].start, device) for _ in range(3 * MOST_STARTS)]
        wait_until(lambda: len(running) == MOST_STARTS)
        time.sleep(0.1)
        release.set()
        errors = [str(future.exception()) for future in futures]

    assert MOST_STARTS == max(most)
    assert {"no controller in this test"} == {error.rpartition(": ")[2] for error in errors}


def test_a_waiting_start_can_be_stopped(starts: base._Starts) -> None:
    """A start that waits for other engines ends when its run is stopped."""
    for _ in range(MOST_STARTS):
        starts._slots.acquire()
    with (
        pytest.raises(InterruptedError, match="waiting for other engines"),
        starts.limit(Starter(report=str, stopped=lambda: True)),
    ):
        pass


def test_starts_that_hang_do_not_hold_up_the_others(starts: base._Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow device never blocks a fast one for good."""
    monkeypatch.setattr(base, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(base, "_RETRY_S", 0.01)
    for _ in range(MOST_STARTS):
        starts._slots.acquire()
    with starts.limit(SILENT):
        began = True

    assert began
    assert not starts._slots.acquire(blocking=False)


class FakeProcess:
    """Stands in for an ssh that has not answered."""

    def kill(self) -> None:
        """Do nothing."""

    def communicate(self) -> None:
        """Do nothing."""
