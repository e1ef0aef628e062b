"""The defaults that a user may change, for a session or for a block.

    >>> import ngbkit
    >>> with ngbkit.set_options(repeats=20):
    ...     ngbkit.get_options()["repeats"]
    20

Nothing here touches ``os.environ``: a child process is told its settings and applies them itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ngbkit.errors import UnknownNameError, UsageError


def _positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _seed(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


DEVICE = "NGBKIT_DEVICE"
"""The environment variable that names the device to measure on: a kernel of a device has it."""

# name: (default, check, what is valid)
_OPTIONS: dict[str, tuple[Any, Callable[[Any], bool], str]] = {
    "repeats": (100, _count, "a positive integer: the samples of a trial"),
    "timeout_s": (600.0, _positive, "seconds above 0: how long one step of a child may take"),
    "seed": (0, _seed, "an integer from 0 up"),
    "device": (
        None,
        lambda value: value is None or (bool(value) and isinstance(value, str)),
        "a label, or None",
    ),
    "state_dir": (None, lambda value: value is None or isinstance(value, (str, Path)), "a folder, or None"),
}
_current: dict[str, Any] = {name: default for name, (default, _, _) in _OPTIONS.items()}


def get_options() -> Mapping[str, Any]:
    """The options in force, by name."""
    return dict(_current)


@contextmanager
def _restoring(before: dict[str, Any]) -> Iterator[None]:
    try:
        yield
    finally:
        _current.update(before)


def set_options(**options: Any) -> Any:
    """Change options at once; as a context manager, until its block ends.

    Parameters
    ----------
    repeats : int
        Samples a trial, 100 as in the paper (section V-A).
    timeout_s : float
        How long one step of a child (building, compiling, a block of calls) may take before it is killed, in seconds.
    seed : int
        Seeds weights, inputs and the order of measuring.
    device : str or None
        The label of the device to measure on where a sweep does not say. None: ``$NGBKIT_DEVICE``, else ``"cpu"``.
    state_dir : path or None
        Where runs, journals and cached artifacts are kept. None: ``$NGBKIT_STATE_DIR``, else the user's state folder.

    Raises
    ------
    UnknownNameError, UsageError
        An option that does not exist, or a value that does not fit.
    """
    for name, value in options.items():
        if name not in _OPTIONS:
            raise UnknownNameError("option", name, _OPTIONS)
        _, check, valid = _OPTIONS[name]
        if not check(value):
            raise UsageError(f"option {name}={value!r} does not fit; valid is {valid}.")
    before = {name: _current[name] for name in options}
    _current.update(options)
    return _restoring(before)


def device() -> str:
    """The label of the device that is measured on where a sweep does not say."""
    return str(_current["device"] or os.environ.get(DEVICE) or "cpu")


def make_state_dir() -> Path:
    """The state folder, made where there is none, for its owner alone: whatever lies in it is out of others' reach."""
    folder = state_dir()
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(exist_ok=True, mode=0o700)
    return folder


def state_dir() -> Path:
    """The folder that holds runs, journals and cached artifacts (not created here)."""
    chosen = _current["state_dir"] or os.environ.get("NGBKIT_STATE_DIR")
    if chosen:
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "ngbkit"
