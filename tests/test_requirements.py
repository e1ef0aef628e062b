"""Tests are skipped for want of a requirement in one way, and counted at the end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import requirements
from requirements import Program, Requirement

NOTHING = Program(name="Nothing", install="sudo apt install nothing", commands=("no-such-program",), package="nothing")
MODULE = Path(requirements.__file__)


@pytest.fixture(autouse=True)
def _lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(requirements.REQUIRE_ALL, raising=False)


def test_a_missing_program_skips_with_the_command_that_installs_it() -> None:
    """The skip has the requirement, for the line at the end."""
    with pytest.raises(pytest.skip.Exception, match=r"needs Nothing; get it by: sudo apt install nothing") as skipped:
        requirements.require_program(NOTHING)

    assert NOTHING == skipped.value.requirement


def test_where_all_is_required_a_missing_program_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing program fails the test, not skips it, where all programs are required."""
    monkeypatch.setenv(requirements.REQUIRE_ALL, "1")
    with pytest.raises(pytest.fail.Exception, match=r"needs Nothing; .* \(NGBKIT_REQUIRE_ALL=1 allows no skip\)"):
        requirements.require_program(NOTHING)


def test_a_present_requirement_never_skips() -> None:
    """A present program has a path."""
    shell = Program(name="a shell", install="", commands=("no-such-shell", "sh"), package="dash")
    requirements.require(Requirement(name="truth", install=""), present=True)

    assert Path(requirements.require_program(shell)).name == "sh"


def test_skipped_tests_are_summarized_in_one_line() -> None:
    """The summary has one line with each requirement, its number of skipped tests and the command."""
    missing = [("Chromium", "sudo apt install chromium"), ("root", "sudo make test"), ("root", "sudo make test")]
    line = requirements.summarize(missing)

    assert line.endswith("1 without Chromium (sudo apt install chromium), 2 without root (sudo make test)")
    assert "\n" not in line
    assert "" == requirements.summarize([])


def test_no_test_skips_in_another_way() -> None:
    """The line at the end would not count it."""
    skips = re.compile(r"pytest\.(skip\(|importorskip|mark\.skip|mark\.xfail|skip\.Exception\()")
    exempt = {MODULE, Path(__file__)}
    files = [path for path in MODULE.parent.rglob("*.py") if path not in exempt]

    assert len(files) > 100
    assert [] == [path.name for path in files if skips.search(path.read_text())]
