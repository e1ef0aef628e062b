"""Options: checked when they are set, put back when the block ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ngbkit import options
from ngbkit.errors import UnknownNameError, UsageError


def test_an_option_holds_until_its_block_ends() -> None:
    """As a context manager it changes nothing for later."""
    with options.set_options(repeats=7):
        within = options.get_options()["repeats"]

    assert (7, 100) == (within, options.get_options()["repeats"])


def test_a_block_that_raises_puts_options_back() -> None:
    """Also when it ends badly."""
    with pytest.raises(RuntimeError), options.set_options(seed=5):
        raise RuntimeError

    assert 0 == options.get_options()["seed"]


@pytest.mark.parametrize("bad", [{"repeats": 0}, {"repeats": True}, {"timeout_s": -1}, {"seed": 1.5}, {"state_dir": 3}])
def test_a_value_that_does_not_fit_is_refused_with_what_does(bad: dict[str, Any]) -> None:
    """And nothing is changed."""
    before = options.get_options()
    with pytest.raises(UsageError, match="does not fit; valid is"):
        options.set_options(**bad)

    assert before == options.get_options()


def test_an_unknown_option_offers_the_nearest() -> None:
    """Options are names like any other."""
    with pytest.raises(UnknownNameError, match="Did you mean repeats"):
        options.set_options(repeat=3)


def test_the_state_folder_is_the_option_then_the_variable_then_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each place gives way to the one before it."""
    monkeypatch.setenv("NGBKIT_STATE_DIR", str(tmp_path / "variable"))
    with options.set_options(state_dir=tmp_path / "option"):
        first = options.state_dir()
    second = options.state_dir()
    monkeypatch.delenv("NGBKIT_STATE_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    third = options.state_dir()

    assert [tmp_path / "option", tmp_path / "variable", tmp_path / "xdg" / "ngbkit"] == [first, second, third]


def test_the_state_folder_is_its_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is there is left as it is."""
    monkeypatch.setenv("NGBKIT_STATE_DIR", str(tmp_path / "some" / "state"))

    assert 0o700 == options.make_state_dir().stat().st_mode & 0o777
    options.state_dir().chmod(0o750)
    assert 0o750 == options.make_state_dir().stat().st_mode & 0o777
