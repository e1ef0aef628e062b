"""The wheels for a device without a network: downloaded here, for its Python, its processor and its C library."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from ngbkit import options
from ngbkit.errors import DeviceError, UsageError
from ngbkit.user_text import clean_line
from ngbkit.workloads.subprocesses import SAFE_PATH

# pip downloads wheels of another platform, but evaluates `python_version < "3.11"` for its own: it would omit a
# backport that the device needs, and add a library for this processor. https://github.com/pypa/pip/issues/11664
_PIP = f"""{SAFE_PATH}
import json, runpy
from pip._vendor.packaging import markers
target = json.loads(sys.argv[1])
markers.default_environment = lambda: dict(target)
sys.argv = ["pip", *sys.argv[2:]]
runpy.run_module("pip", run_name="__main__")
"""
# The minor version of the oldest glibc that the wheels of a processor support, and the names of tags before PEP 600.
_OLDEST = {"x86_64": 5}
_OLD_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
_REMEDY = "name a folder with its wheels"


def download(machine: Mapping[str, Any], wheel: Path, extras: Sequence[str], report: Callable[[str], object]) -> Path:
    """Download the wheels that ngbkit's wheel needs on a machine; return their folder, which the next one reuses."""
    return _download(machine, extras, [f"{wheel}[{','.join(extras)}]" if extras else str(wheel)], [], report)


def download_release(
    machine: Mapping[str, Any], requirements: Sequence[str], shelf: Path | None, report: Callable[[str], object]
) -> list[Path]:
    """Download the wheels of a release, the first requirement, or choose them in the folder `shelf`; return them."""
    source = ["--no-index", "--find-links", str(shelf)] if shelf else []
    return sorted(_download(machine, [requirements[0]], requirements, source, report).glob("*.whl"))


def _download(
    machine: Mapping[str, Any],
    names: Sequence[str],
    requirements: Sequence[str],
    source: Sequence[str],
    report: Callable[[str], object],
) -> Path:
    """Download what requirements need on a machine, from pip's `source`, into a folder with these names."""
    # The hook of setuptools takes `importlib.util.find_spec` for an import of pip, and breaks `import setuptools`.
    if PathFinder.find_spec("pip") is None:
        raise UsageError(f"{sys.executable} has no pip to download wheels: {_REMEDY}.")
    platforms = _list_platforms(machine)
    markers = machine["markers"]
    home = options.get_state_dir() / options.LAYOUT.wheelhouses
    folder = home / "-".join([f"cp{markers['python_version'].replace('.', '')}", platforms[0], *sorted(names)])
    options.make_private(home)
    # A new folder each time: otherwise old and new versions would both be sent.
    with tempfile.TemporaryDirectory(dir=home) as fresh:
        command = [sys.executable, "-c", _PIP, json.dumps(dict(markers)), "--disable-pip-version-check", "--no-input"]
        command += ["download", "--progress-bar", "off", "--dest", fresh, "--only-binary", ":all:"]
        command += ["--implementation", "cp", "--python-version", markers["python_full_version"]]
        command += [word for platform in platforms for word in ("--platform", platform)]
        command += ["--find-links", str(folder)] if folder.is_dir() else []
        _run([*command, *source, *requirements], report)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        for file in Path(fresh).glob("*.whl"):
            file.rename(folder / file.name)
    return folder


def select_missing(folder: Path, installed: Sequence[str]) -> list[Path]:
    """Select the wheels of a folder that are not installed in the same version, without ngbkit's own."""
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        raise UsageError(
            f"no wheels in {folder}: fill it (`pip download`), or use --wheelhouse without a folder to download them."
        )
    names = {wheel: _normalize("-".join(wheel.name.split("-")[:2])) for wheel in wheels}
    present = {_normalize(name.removesuffix(".dist-info")) for name in installed}
    return [wheel for wheel, name in names.items() if name not in present and not name.startswith("ngbkit-")]


def _list_platforms(machine: Mapping[str, Any]) -> list[str]:
    """List the platform tags of wheels that run on a machine, the newest first."""
    markers = machine["markers"]
    processor, version = markers["platform_machine"], markers["python_version"]
    # They are part of a folder's name, so a device must not choose them freely.
    if not re.fullmatch(r"\w+ 3\.\d+", f"{processor} {version}", re.ASCII):
        processor, version = clean_line(processor), clean_line(version)
        raise DeviceError(f"invalid device: got processor {processor!r} and Python {version!r}.")
    name = markers["platform_python_implementation"]
    if name != "CPython" or machine["free_threaded"]:
        python = "a free-threaded Python" if machine["free_threaded"] else clean_line(name)
        raise UsageError(f"cannot choose wheels for {python} {version}: {_REMEDY}.")
    if not re.fullmatch(r"2\.\d\d?", machine["glibc"], re.ASCII):
        raise UsageError(f"cannot choose wheels for a C library other than glibc: {_REMEDY}.")
    newest = int(machine["glibc"].split(".")[1])
    platforms = []
    for minor in range(newest, _OLDEST.get(processor, 17) - 1, -1):
        platforms.append(f"manylinux_2_{minor}_{processor}")
        if minor in _OLD_NAMES:
            platforms.append(f"{_OLD_NAMES[minor]}_{processor}")
    return [*platforms, f"linux_{processor}"]


def _normalize(name: str) -> str:
    """Normalize the name and version of a distribution."""
    return name.lower().replace(".", "_")


def _run(command: Sequence[str], report: Callable[[str], object]) -> None:
    last: deque[str] = deque(maxlen=20)
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last.append(line.rstrip())
            report(last[-1])
    if process.returncode:
        raise DeviceError("cannot download the wheels for the device; pip's output:\n" + "\n".join(last))
