"""Durations of tests order them, and tell the quick ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import durations
import pytest

SECONDS = {"a.py::slow": 9.0, "b.py::slower": 20.0, "c.py::slow[1]": 8.0, "c.py::slow[2]": 7.0}


def test_the_files_that_take_longest_come_first() -> None:
    """Whole, and each in its own order."""
    tests = ["a.py::quick", "a.py::slow", "b.py::slower", "c.py::slow[1]", "c.py::slow[2]", "d.py::new"]

    assert [2, 3, 4, 0, 1, 5] == durations.longest_first(tests, SECONDS)


def test_what_is_not_recorded_is_quick() -> None:
    """A new file is run after each change until it is known to be slow; what a file sets up counts for all of it."""
    seconds = {**SECONDS, "e.py::some": 1.1}

    assert [False, True, True] == [durations.is_quick(file, seconds) for file in ("c.py", "d.py", "e.py")]


def test_what_was_recorded_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test's set-up counts; a quick one is left out."""
    monkeypatch.setattr(durations, "RECORD", tmp_path / "durations.json")
    reports = [("a", 0.7), ("a", 0.6), ("b", 0.9)]

    assert {} == durations.load()
    durations.save(SimpleNamespace(nodeid=test, duration=seconds) for test, seconds in reports)  # type: ignore[misc]
    assert {"a": 1.3} == durations.load()
