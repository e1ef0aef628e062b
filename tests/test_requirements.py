"""What a machine lacks is said in one way, and counted at the end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import requirements
from requirements import Program, Requirement

NOTHING = Program(name="Nothing", install="sudo apt install nothing", commands=("no-such-program",), package="nothing")
DOOR = Path(requirements.__file__)


@pytest.fixture(autouse=True)
def _lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(requirements.REQUIRE_ALL, raising=False)


def test_a_missing_program_skips_with_the_command_that_brings_it() -> None:
    """The skip carries the requirement, for the line at the end."""
    with pytest.raises(pytest.skip.Exception, match=r"needs Nothing; get it by: sudo apt install nothing") as skipped:
        requirements.require_program(NOTHING)

    assert NOTHING == skipped.value.requirement


def test_where_all_is_required_a_missing_program_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in continuous integration."""
    monkeypatch.setenv(requirements.REQUIRE_ALL, "1")
    with pytest.raises(pytest.fail.Exception, match=r"needs Nothing; .* \(NGBKIT_REQUIRE_ALL=1 allows no skip\)"):
        requirements.require_program(NOTHING)


def test_what_is_there_is_no_reason_to_skip() -> None:
    """A program gives its path."""
    shell = Program(name="a shell", install="", commands=("no-such-shell", "sh"), package="dash")
    requirements.require(Requirement(name="truth", install=""), present=True)

    assert Path(requirements.require_program(shell)).name == "sh"


def test_one_line_says_what_was_left_out() -> None:
    """By requirement, with the number of tests and the command; nothing where nothing was left out."""
    missing = [("Chromium", "sudo apt install chromium"), ("root", "sudo make test"), ("root", "sudo make test")]
    line = requirements.summarize(missing)

    assert line.endswith("1 without Chromium (sudo apt install chromium), 2 without root (sudo make test)")
    assert "\n" not in line
    assert "" == requirements.summarize([])


def test_there_is_no_other_door() -> None:
    """No test skips by itself, where the line at the end would not know of it."""
    doors = re.compile(r"pytest\.(skip\(|importorskip|mark\.skip|mark\.xfail|skip\.Exception\()")
    own = {DOOR, Path(__file__)}
    files = [path for path in DOOR.parent.rglob("*.py") if path not in own]

    assert len(files) > 100
    assert [] == [path.name for path in files if doors.search(path.read_text())]
