"""Controllers: one for this machine, one for each remote device, and one for each group that its user trusts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ngbkit.cluster import engines, hubs
from ngbkit.cluster.devices import Device
from ngbkit.cluster.hubs import borrow

HERE = Device(label="cpu", launch="local")
FAR = Device(label="far", launch="ssh", host="far")
TRUSTED = replace(FAR, trust="lab")
NODE = Device(label="node", launch="slurm", address="10.0.0.5", trust="lab")


class Hub:
    """Stands in for a controller."""

    started: list[Hub]

    def __init__(self, address: str | None) -> None:
        self.address, self.is_alive, self.stops = address, True, 0
        self.users: set[str] = set()

    @classmethod
    def start(cls, address: str | None = None) -> Hub:
        cls.started.append(cls(address))
        return cls.started[-1]

    def stop(self) -> None:
        self.is_alive = False
        self.stops += 1


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Hub]]:
    """The controllers that were started, none of which is left."""
    monkeypatch.setattr(hubs, "Hub", Hub)
    monkeypatch.setattr(hubs, "_shared", {})
    monkeypatch.setattr(Hub, "started", [], raising=False)
    yield Hub.started
    assert {} == hubs._shared


@pytest.mark.parametrize(
    ("devices", "number"),
    [
        ([HERE, replace(HERE, label="other")], 1),
        ([FAR, replace(FAR, label="other")], 2),
        ([HERE, FAR], 2),
        ([TRUSTED, replace(TRUSTED, label="other")], 1),
        ([TRUSTED, replace(HERE, trust="lab")], 1),
        ([TRUSTED, HERE, FAR], 3),
        ([TRUSTED, replace(TRUSTED, trust="others")], 2),
        ([NODE, replace(NODE, label="other")], 1),
        ([NODE, replace(NODE, address="10.0.0.6")], 2),
        ([NODE, TRUSTED, replace(TRUSTED, network="direct", address="10.0.0.5")], 2),
    ],
)
def test_a_controller_is_shared_within_a_group_only(devices: list[Device], number: int, started: list[Hub]) -> None:
    """A remote device without one shares nothing; an address needs a controller that listens there."""
    releases = [borrow(device, f"ngb.{index}")[1] for index, device in enumerate(devices)]

    assert number == len(started)
    assert {hub.address for hub in started} <= {None, "10.0.0.5", "10.0.0.6"}

    for release in releases:
        release()

    assert [1] * number == [hub.stops for hub in started]


def test_a_controller_ends_with_its_last_engine(started: list[Hub]) -> None:
    """The end of one engine does not end the others; a later one starts another controller."""
    (first, end_first), (second, end_second) = borrow(TRUSTED, "ngb.1"), borrow(TRUSTED, "ngb.2")
    end_first()
    end_first()

    assert first is second
    assert 0 == first.stops

    end_second()
    third, end_third = borrow(TRUSTED, "ngb.3")
    end_third()

    assert 1 == first.stops
    assert first is not third


def test_a_dead_controller_is_replaced(started: list[Hub]) -> None:
    """The late end of an engine of the old one does not end the new one."""
    old, end_old = borrow(TRUSTED, "ngb.1")
    old.is_alive = False
    new, end_new = borrow(TRUSTED, "ngb.2")
    end_old()

    assert (old, 0) != (new, new.stops)
    assert new.is_alive

    end_new()


def test_engines_of_a_group_end_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two devices share the controller of their group, and the second outlives the first."""
    file = tmp_path / "devices.toml"
    file.write_text("".join(f'[{label}]\nlaunch = "local"\ntrust = "lab"\n' for label in ("a", "b")))
    file.chmod(0o600)
    monkeypatch.chdir(tmp_path)
    try:
        first, second, other = (engines.acquire(label) for label in ("a", "b", "cpu"))

        assert first.view.client is second.view.client
        assert first.view.client is not other.view.client

        engines.stop("a")

        assert not first.is_alive()
        assert second.hello()["cores_usable"] > 0
    finally:
        engines.close()

    assert {} == engines.find_running()
