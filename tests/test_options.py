"""Options: checked when set, restored when the block ends; and the layout of the state folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ngbkit import options
from ngbkit.cluster import devices
from ngbkit.errors import UnknownNameError, UsageError


def test_an_option_is_restored_when_its_block_ends() -> None:
    """An option changed by `set_options` is restored when its block ends."""
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
    """The error of an unknown option suggests the nearest name."""
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


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_the_state_folder_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state folder and the parents created with it are private; existing parents keep their mode."""
    monkeypatch.setenv("NGBKIT_STATE_DIR", str(tmp_path / "some" / "state"))
    tmp_path.chmod(0o755)

    assert 0o700 == mode(options.make_state_dir())
    assert 0o700 == mode(tmp_path / "some")
    assert 0o755 == mode(tmp_path)


def test_an_open_state_folder_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state folder that others can read is made private, with its folders and files."""
    state = tmp_path / "state"
    (state / "runs").mkdir(parents=True)
    (state / "peaks.json").touch()
    (state / "mine").touch()
    (tmp_path / "elsewhere").mkdir()
    (state / "artifacts").symlink_to(tmp_path / "elsewhere")
    for path in (state, state / "runs", state / "peaks.json", state / "mine", tmp_path / "elsewhere"):
        path.chmod(0o755)
    monkeypatch.setenv("NGBKIT_STATE_DIR", str(state))

    options.make_state_dir()

    assert [0o700] * 3 == [mode(path) for path in (state, state / "runs", state / "peaks.json")]
    assert [0o755] * 2 == [mode(path) for path in (state / "mine", tmp_path / "elsewhere")]


@pytest.mark.parametrize("kind", ["home", "above", "sticky"])
def test_a_folder_of_others_too_keeps_its_mode(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home folder, one above it, or one such as /tmp: only what ngbkit keeps in it is closed."""
    (tmp_path / "runs").mkdir()
    for path in (tmp_path, tmp_path / "runs"):
        path.chmod(0o1777 if kind == "sticky" and path == tmp_path else 0o755)
    before = mode(tmp_path)
    monkeypatch.setenv("NGBKIT_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("HOME", str({"home": tmp_path, "above": tmp_path / "me"}.get(kind, "/nowhere")))

    options.make_state_dir()

    assert (before, 0o700) == (mode(tmp_path), mode(tmp_path / "runs"))


def test_the_folder_of_another_user_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mode of another user's folder is not changed."""
    tmp_path.chmod(0o755)
    monkeypatch.setenv("NGBKIT_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)

    options.make_state_dir()

    assert 0o755 == mode(tmp_path)


def test_only_a_new_state_folder_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that has other files may be the user's own."""
    (tmp_path / "project" / "cache").mkdir(parents=True)
    for name in ("project", "new"):
        monkeypatch.setenv("NGBKIT_STATE_DIR", str(tmp_path / name))
        options.make_state_dir()

    assert [tmp_path / "new" / ".ngbkit"] == list(tmp_path.glob("*/.ngbkit"))


def test_a_user_without_a_home_folder_names_a_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of a container has none, and needs none where NGBKIT_STATE_DIR is set."""

    def fail() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", fail)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("NGBKIT_STATE_DIR", str(tmp_path))
    assert tmp_path == options.make_state_dir()
    assert {"cpu"} == {*devices.load()}
    monkeypatch.delenv("NGBKIT_STATE_DIR")

    with pytest.raises(UsageError, match=r"this user has no home folder\. Set NGBKIT_STATE_DIR"):
        options.get_state_dir()


def test_the_patience_of_a_device_is_that_of_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The patience of a device is that of its environment, or 2."""
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
