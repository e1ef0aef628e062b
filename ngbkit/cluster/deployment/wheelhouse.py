"""The wheels that a device without a network needs: fetched here, for its Python, its processor and its C library."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ngbkit import options
from ngbkit.cluster.replies import plain
from ngbkit.errors import DeviceError, UsageError

# pip takes wheels of another platform, and asks its own about `python_version < "3.11"` all the same: a backport that
# the device needs would be left out, a library for this processor taken in. https://github.com/pypa/pip/issues/11664
_PIP = """
import json, runpy, sys
from pip._vendor.packaging import markers
target = json.loads(sys.argv[1])
markers.default_environment = lambda: dict(target)
sys.argv = ["pip", *sys.argv[2:]]
runpy.run_module("pip", run_name="__main__")
"""
# The oldest C library that wheels of a processor are made for, and what its wheels were called before they told it.
_OLDEST = {"x86_64": 5}
_OLD_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


def gather(about: Mapping[str, Any], wheel: Path, extras: Sequence[str], say: Callable[[str], None]) -> Path:
    """Fetch the wheels that a device needs, into a folder that is kept for the next time; the folder.

    Parameters
    ----------
    about
        What the device is: ``markers``, ``glibc``, ``free_threaded``.
    wheel
        The wheel of ngbkit.
    extras
        The extras of it that are wanted.
    say
        Takes what pip prints, line by line.

    Raises
    ------
    UsageError
        There is no pip here, or wheels cannot be told for such a device.
    DeviceError
        pip failed; the message holds what it said last. Or no device is what this one says it is.
    """
    if importlib.util.find_spec("pip") is None:
        raise UsageError(f"{sys.executable} has no pip to fetch wheels with: name a folder that holds them.")
    platforms = _platforms(about)
    version = about["markers"]["python_version"]
    home = options.state_dir() / "wheelhouses"
    folder = home / "-".join([f"cp{version.replace('.', '')}", platforms[0], *sorted(extras)])
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Fetched anew each time, or a newer version would lie beside the one before and both would travel.
    with tempfile.TemporaryDirectory(dir=home) as fresh:
        program = [
            sys.executable,
            "-c",
            _PIP,
            json.dumps(dict(about["markers"])),
            "--disable-pip-version-check",
            "--no-input",
        ]
        program += ["download", "--progress-bar", "off", "--dest", fresh, "--only-binary", ":all:"]
        program += ["--implementation", "cp", "--python-version", about["markers"]["python_full_version"]]
        program += [word for platform in platforms for word in ("--platform", platform)]
        program += ["--find-links", str(folder)] if folder.is_dir() else []
        _show([*program, f"{wheel}[{','.join(extras)}]" if extras else str(wheel)], say)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        for file in Path(fresh).glob("*.whl"):
            file.rename(folder / file.name)
    return folder


def needed(folder: Path, installed: Sequence[str]) -> list[Path]:
    """The wheels of a folder, without ngbkit's own, and without those that are installed in the same version.

    Raises
    ------
    UsageError
        There is no such folder, or no wheel in it.
    """
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        raise UsageError(
            f"{folder} is no folder of wheels: fill it (`pip download`), or let --wheelhouse do so unnamed."
        )
    there = {_plain(name.removesuffix(".dist-info")) for name in installed}
    found = {wheel: _plain("-".join(wheel.name.split("-")[:2])) for wheel in wheels}
    return [wheel for wheel, name in found.items() if name not in there and not name.startswith("ngbkit-")]


def _platforms(about: Mapping[str, Any]) -> list[str]:
    """The platforms whose wheels run there, the newest first."""
    markers = about["markers"]
    machine, version = markers["platform_machine"], markers["python_version"]
    # They name a folder here, which a device may not choose.
    if not re.fullmatch(r"\w+ 3\.\d+", f"{machine} {version}", re.ASCII):
        raise DeviceError(
            f"a device of processor {plain(machine)!r} and Python {plain(version)!r} is none that there is."
        )
    name = markers["platform_python_implementation"]
    if name != "CPython" or about["free_threaded"]:
        what = "a free-threaded Python" if about["free_threaded"] else plain(name)
        raise UsageError(f"which wheels suit {what} {version} is not known here: name a folder that holds them.")
    if not re.fullmatch(r"2\.\d\d?", about["glibc"], re.ASCII):
        raise UsageError("its C library is not glibc, for which most wheels are made: name a folder that holds them.")
    newest = int(about["glibc"].split(".")[1])
    found = []
    for minor in range(newest, _OLDEST.get(machine, 17) - 1, -1):
        found.append(f"manylinux_2_{minor}_{machine}")
        if minor in _OLD_NAMES:
            found.append(f"{_OLD_NAMES[minor]}_{machine}")
    return [*found, f"linux_{machine}"]


def _plain(name: str) -> str:
    """A distribution and its version, however they are written."""
    return name.lower().replace(".", "_")


def _show(program: Sequence[str], say: Callable[[str], None]) -> None:
    last: deque[str] = deque(maxlen=20)
    with subprocess.Popen(
        program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last.append(line.rstrip())
            say(last[-1])
    if process.returncode:
        raise DeviceError("the wheels for the device could not be fetched; pip said:\n" + "\n".join(last))
