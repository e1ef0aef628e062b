"""Recorded durations order the tests, and select the quick ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import durations
import pytest
import rooms

SECONDS = {"a.py::slow": 9.0, "b.py::slower": 20.0, "c.py::slow[1]": 8.0, "c.py::slow[2]": 7.0}


def test_the_files_that_take_longest_come_first() -> None:
    """Files stay together, and their tests in order."""
    tests = ["a.py::quick", "a.py::slow", "b.py::slower", "c.py::slow[1]", "c.py::slow[2]", "d.py::new"]

    assert [2, 3, 4, 0, 1, 5] == durations.order_tests(tests, SECONDS)


def test_unrecorded_tests_are_quick() -> None:
    """A new file runs after each change until it is recorded as slow; the tests of a file count together."""
    seconds = {**SECONDS, "e.py::some": 1.1}

    assert [False, True, True] == [durations.is_quick(file, seconds) for file in ("c.py", "d.py", "e.py")]
    assert not durations.is_quick("e.py", seconds | {"e.py": 1.5})


def test_a_part_replaces_its_own_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record of a run of some tests keeps that of the others, and has their shared fixtures."""
    monkeypatch.setattr(durations, "RECORD", tmp_path / "durations.json")
    shared = [(durations.PROPERTY, ("folder:site", 7.0))]
    durations.save([SimpleNamespace(nodeid=test, duration=3.0) for test in "ab"])  # type: ignore[misc]
    part = SimpleNamespace(nodeid="b", duration=5.0, when="setup", user_properties=shared)
    durations.save([part], is_part=True)  # type: ignore[list-item]

    assert {"a": 3.0, "b": 5.0, "folder:site": 7.0} == durations.load()


def test_a_part_forgets_no_short_tests_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose short tests take seconds stays no quick one after a run of some of them."""
    monkeypatch.setattr(durations, "RECORD", tmp_path / "durations.json")
    tests = [SimpleNamespace(nodeid=f"a.py::{number}", duration=0.9) for number in range(4)]
    durations.save(tests)  # type: ignore[arg-type]
    durations.save(tests[:1], is_part=True)  # type: ignore[arg-type]

    assert {"a.py": 3.6} == durations.load()


def test_a_test_is_as_long_as_what_it_shares() -> None:
    """A short test is long if it needs a long fixture: whichever test comes first would wait for it."""
    fixture = SimpleNamespace(baseid="folder", argname="site")
    info = SimpleNamespace(name2fixturedefs={"site": [fixture]})
    item: Any = SimpleNamespace(nodeid="folder/a.py::quick", _fixtureinfo=info)

    assert [True, False] == [durations.is_short(item, seconds) for seconds in (SECONDS, {"folder:site": 7.0})]


@pytest.mark.parametrize(
    ("changed", "affected"),
    [
        ("ngbkit/metrics/tables.py", {"metrics", "figures", "test_cli.py"}),
        ("ngbkit/errors.py", {"device", "metrics", "figures", "test_cli.py"}),
        ("tests/device/test_plan.py", {"device"}),
        ("tests/test_cli.py", {"test_cli.py"}),
        ("tests/conftest.py", {"device", "metrics", "figures", "test_cli.py"}),
        ("notebooks/paper.md", {"test_cli.py"}),
        (".ci/tested", set()),
        ("tests/rooms.py", set()),
    ],
)
def test_a_change_affects_the_rooms_above_it(changed: str, affected: set[str]) -> None:
    """The long tests of a room run again after a change of it, or of what it imports."""
    folders = ("device", "metrics", "figures", "test_cli.py")

    assert affected == {folder for folder in folders if rooms.is_affected(f"tests/{folder}", [changed])}


def test_saved_durations_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The set-up of a test counts; quick tests are not recorded, but all of a file are."""
    monkeypatch.setattr(durations, "RECORD", tmp_path / "durations.json")
    reports = [("a.py::a", 0.7), ("a.py::a", 0.6), ("b.py::b", 0.9), ("c.py::c", 0.9), ("c.py::d", 0.8)]

    assert {} == durations.load()
    durations.save(SimpleNamespace(nodeid=test, duration=seconds) for test, seconds in reports)  # type: ignore[misc]
    assert {"a.py::a": 1.3, "c.py": 1.7} == durations.load()


def test_a_file_that_cannot_be_imported_has_no_duration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The durations of the other tests are saved."""
    monkeypatch.setattr(durations, "RECORD", tmp_path / "durations.json")
    durations.save([SimpleNamespace(nodeid="broken"), SimpleNamespace(nodeid="a", duration=1.5)])  # type: ignore[list-item]

    assert {"a": 1.5} == durations.load()


def test_durations_are_those_of_a_test_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that shared cores took longer, all by the same share."""
    monkeypatch.setattr(durations, "RECORD", tmp_path / "durations.json")
    durations.save([SimpleNamespace(nodeid=test, duration=30.0) for test in "ab"], available_s=40.0)  # type: ignore[misc]

    assert {"a": 20.0, "b": 20.0} == durations.load()
