"""Options: checked when set, restored when the block ends; and the layout of the state folder."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from ngbkit import options
from ngbkit.cluster.deployment.onsite import folder
from ngbkit.errors import UnknownNameError, UsageError


def test_an_option_is_restored_when_its_block_ends() -> None:
    """As a context manager, `set_options` changes nothing after the block."""
    with options.set_options(repeats=7):
        within = options.get_options()["repeats"]

    assert (7, 100) == (within, options.get_options()["repeats"])


def test_a_block_that_raises_restores_options() -> None:
    """An exception changes nothing about that."""
    with pytest.raises(RuntimeError), options.set_options(seed=5):
        raise RuntimeError

    assert 0 == options.get_options()["seed"]


@pytest.mark.parametrize(
    ("name", "value"), [("repeats", 0), ("repeats", True), ("timeout_s", -1), ("seed", 1.5), ("state_dir", 3)]
)
def test_an_invalid_value_is_rejected(name: str, value: Any) -> None:
    """The error reports the value and the valid ones, and no option changes."""
    previous = options.get_options()
    with pytest.raises(UsageError, match=f"invalid option {name}: got {value!r}; expected "):
        options.set_options(**{name: value})

    assert previous == options.get_options()


def test_an_unknown_option_offers_the_nearest() -> None:
    """As any unknown name does."""
    with pytest.raises(UnknownNameError, match="Did you mean repeats"):
        options.set_options(repeat=3)


def test_the_state_folder_is_the_option_then_the_variable_then_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each source takes precedence over the next."""
    monkeypatch.setenv("NGBKIT_STATE_DIR", str(tmp_path / "variable"))
    with options.set_options(state_dir=tmp_path / "option"):
        first = options.get_state_dir()
    second = options.get_state_dir()
    monkeypatch.delenv("NGBKIT_STATE_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    third = options.get_state_dir()

    assert [tmp_path / "option", tmp_path / "variable", tmp_path / "xdg" / "ngbkit"] == [first, second, third]


def test_the_state_folder_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mode of an existing folder does not change."""
    monkeypatch.setenv("NGBKIT_STATE_DIR", str(tmp_path / "some" / "state"))

    assert 0o700 == options.make_state_dir().stat().st_mode & 0o777
    options.get_state_dir().chmod(0o750)
    assert 0o750 == options.make_state_dir().stat().st_mode & 0o777


def test_a_device_lists_the_names_of_the_layout() -> None:
    """The code that runs on a device before ngbkit is installed there has a list of its own."""
    layout = {name if "." not in name else f"{Path(name).stem}.*" for name in astuple(options.LAYOUT)}

    assert layout == {*folder.OURS, *folder.CLIENTS}


def test_the_patience_of_a_device_is_that_of_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is 2 without the variable."""
    monkeypatch.setenv(options.PATIENCE, "0.5")
    assert 0.5 == options.get_patience()
    monkeypatch.delenv(options.PATIENCE)
    assert 2.0 == options.get_patience()


@pytest.mark.parametrize("text", ["much", "-1", "nan", "inf", ""])
def test_a_patience_that_is_no_number_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has its name, what it was, and what is valid."""
    monkeypatch.setenv(options.PATIENCE, text)
    with pytest.raises(UsageError, match=r"invalid \$NGBKIT_PATIENCE: got '.*'; expected a number >= 0"):
        options.get_patience()
