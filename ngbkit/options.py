"""The defaults that a user may change, for a session or for a block, and the layout of the state folder.

    >>> import ngbkit
    >>> with ngbkit.set_options(repeats=20):
    ...     ngbkit.get_options()["repeats"]
    20

Nothing here changes ``os.environ``: a child process receives its settings and applies them itself.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Annotated, Any

from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.user_text import parse_path
from ngbkit.validation import Check, Count, Duration, Label, Multiple, check, describe_valid, integer, is_valid

DEVICE = "NGBKIT_DEVICE"
"""The environment variable that names the device to measure on; the kernel of a device sets it."""

STATE_DIR = "NGBKIT_STATE_DIR"
"""The environment variable that names the state folder."""

PATIENCE = "NGBKIT_PATIENCE"
"""The environment variable that sets the patience of sweeps on a device; see `ngbkit.Sweep`."""

PRELOAD = "NGBKIT_PRELOAD"
"""The environment variable that, as 0, keeps ``%load_ext ngbkit`` from starting the engine of this machine."""

# The multiple of its time that a group may spend on repetitions.
_PATIENCE = 2.0


@dataclass(frozen=True, slots=True)
class Layout:
    """The names directly below the state folder.

    `ngbkit.fleet.deployment.onsite` lists the same names, as it runs on a device before ngbkit is installed there.
    """

    # Of the client:
    runs: str = "runs"  # a folder per run: its description and journal
    bisections: str = "bisections"  # the releases and the gates of each bisection
    capacities: str = "capacities"  # the tests of LoadGen of each search for a capacity
    wheelhouses: str = "wheelhouses"  # the wheels downloaded for devices without a network
    # Of the client and of each device:
    artifacts: str = "artifacts"  # files by content hash: ONNX graphs, exported programs, examples
    cache: str = "cache"  # a folder per device of prepared workloads; `graphs` of predictors
    clusters: str = "clusters"  # the connection files of running controllers
    scratch: str = "scratch"  # the temporary folders of running processes
    # Of each device:
    cores: str = "cores"  # the lock of each core that a device measures on
    devices: str = "devices"  # a folder per device label: the journal of each run, the lock of the device
    downloads: str = "downloads"  # pip's cache during a deployment
    engines: str = "engines"  # a folder per engine: its process, connection file and log
    environments: str = "environments"  # a folder per release of a compiler, with its packages: `onnxruntime@1.23.2`
    env: str = "env"  # the virtual environment that `ngbkit deploy` created
    incoming: str = "incoming"  # artifacts in transfer
    manifests: str = "manifests"  # a folder per device: what the build of each network loaded
    hosts: str = "hosts.json"  # how often the probes of the host had which times (a file)
    peaks: str = "peaks.json"  # the device's measured peaks (a file)
    selfcheck: str = "selfcheck"  # the latest self-check of each device label, and the history of its runs
    releases: str = "releases"  # the wheels of releases that a deployment brought
    tuning: str = "tuning"  # a folder per device label of tuning results, which no cold compile removes
    wheels: str = "wheels"  # the wheels of a deployment in progress
    # Of every state folder that ngbkit created: `ngbkit deploy --remove` removes nothing from any other.
    mark: str = ".ngbkit"

    def locate_selfcheck(self, state_dir: Path, device: str) -> Path:
        """The file of a device's latest self-check."""
        return state_dir / self.selfcheck / f"{device}.json"

    def locate_history(self, state_dir: Path, device: str) -> Path:
        """The file of how far the runs of a device differed."""
        return state_dir / self.selfcheck / f"{device}.history.json"


LAYOUT = Layout()


def _check_folder(value: Any) -> Any:
    if not isinstance(value, (str, Path)):
        raise ValueError
    return value


_OPTIONS: dict[str, tuple[Any, Any]] = {
    "repeats": (100, Annotated[int, integer(1, expected="an integer >= 1, the samples per trial")]),
    "timeout_s": (600.0, Duration),
    "seed": (0, Count),
    "device": (None, Label | None),
    "state_dir": (None, Annotated[str | Path, Check(_check_folder, "the path of a folder")] | None),
}
"""The default and the annotation of each option."""

_current: dict[str, Any] = {name: default for name, (default, _) in _OPTIONS.items()}


def get_options() -> Mapping[str, Any]:
    """Return the current options, by name."""
    return dict(_current)


@contextmanager
def _restore_after(previous: dict[str, Any]) -> Iterator[None]:
    try:
        yield
    finally:
        _current.update(previous)


def set_options(**options: Any) -> Any:
    """Change options at once; as a context manager, until its block ends.

    Parameters
    ----------
    repeats : int
        Samples per trial, 100 as in the paper (section V-A).
    timeout_s : float
        The time limit in seconds of one step of a child process (building, compiling, a block of calls).
    seed : int
        Seeds weights, inputs and the order of measurement.
    device : str or None
        The label of the device to measure on by default. None: ``$NGBKIT_DEVICE``, else ``"cpu"``.
    state_dir : path or None
        The folder of runs, journals and cached artifacts. None: ``$NGBKIT_STATE_DIR``, else the user's state folder.

    Raises
    ------
    UnknownNameError, UsageError
        An unknown option, or an invalid value.
    """
    for name, value in options.items():
        if name not in _OPTIONS:
            raise UnknownNameError("option", name, _OPTIONS)
        check(f"option {name}", _OPTIONS[name][1], value)
    previous = {name: _current[name] for name in options}
    _current.update(options)
    return _restore_after(previous)


def get_device() -> str:
    """Return the label of the device to measure on by default."""
    return str(_current["device"] or os.environ.get(DEVICE) or "cpu")


def get_patience() -> float:
    """Return the patience of this device, where a sweep does not set it; UsageError if the variable is no number."""
    text = os.environ.get(PATIENCE)
    with suppress(ValueError):
        if text is None or is_valid(Multiple, float(text)):
            return _PATIENCE if text is None else float(text)
    raise UsageError(f"invalid ${PATIENCE}: got {text!r}; expected {describe_valid(Multiple)}.")


def get_home() -> Path | None:
    """Return the home folder of this user; None for a user without one, such as the number of a container."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def get_state_dir() -> Path:
    """Return the folder of runs, journals and cached artifacts, whether it exists or not; UsageError for a file."""
    path = _current["state_dir"] or os.environ.get(STATE_DIR)
    if path:
        folder = parse_path(path).absolute()
    elif base := os.environ.get("XDG_STATE_HOME"):
        folder = parse_path(base) / "ngbkit"
    elif home := get_home():
        folder = home / ".local/state/ngbkit"
    else:
        raise UsageError(f"this user has no home folder. Set {STATE_DIR} to a folder for the files of ngbkit.")
    if folder.exists() and not folder.is_dir():
        raise UsageError(
            f"invalid state folder: got {folder}, which is a file; expected a folder. Name another by {STATE_DIR}."
        )
    return folder


def make_state_dir() -> Path:
    """Create the state folder if it does not exist, close it to all but its owner, and return it.

    A folder that the user shares with others by its nature (a home folder, ``/tmp``) keeps its own mode; what ngbkit
    keeps in it is closed all the same.
    """
    folder = mark_private(get_state_dir())
    home = get_home() or Path("/")
    if folder != home and folder not in home.parents and not folder.stat().st_mode & stat.S_ISVTX:
        _close(folder)
    for name in astuple(LAYOUT):
        _close(folder / name)
    return folder


def make_private(folder: Path) -> Path:
    """Create a folder with its missing parents, each readable by its owner alone, and return it."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(exist_ok=True, mode=0o700)  # `parents=True` would create the parents with the default mode
    return folder


def mark_private(folder: Path) -> Path:
    """Create a state folder as `make_private` does, and mark it as ngbkit's unless it has other files."""
    if not any(make_private(folder).iterdir()):
        (folder / LAYOUT.mark).touch(mode=0o600)
    return folder


def _close(path: Path) -> None:
    """Take a file or folder of this user from all others; a link is left to its target."""
    with suppress(OSError):  # it does not exist, or its file system has no modes
        status = path.lstat()
        if not stat.S_ISLNK(status.st_mode) and status.st_uid == os.getuid() and status.st_mode & 0o077:
            path.chmod(stat.S_IMODE(status.st_mode) & ~0o077)
