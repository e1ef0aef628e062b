"""The files of an environment of a release: whether they are still as they were installed, and their removal."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from ngbkit.errors import DeviceError
from ngbkit.files import read_chunks
from ngbkit.hardware import subprocesses

DESCRIPTION = "environment.json"
# The longest start of an interpreter.
_START_S = 60.0


def locate_interpreter(folder: Path) -> Path:
    """Locate the interpreter of an environment."""
    return folder / "bin" / "python"


def read_python(folder: Path) -> str:
    """Read the version of an environment's Python from itself; empty if it does not run."""
    words = ("-I", "-S", "-c", "import platform; print(platform.python_version())")
    command = (str(locate_interpreter(folder)), *words)
    try:
        return subprocesses.run(command, environment=os.environ, timeout_s=_START_S).strip()
    except DeviceError:
        return ""


def digest_files(folder: Path) -> str:
    """Digest the places, sizes and times of the files of an environment, without those that importing them writes."""
    digest = hashlib.blake2b(digest_size=12)
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for path in (Path(root, name) for name in sorted({*names} - {DESCRIPTION})):
            status = path.lstat()
            digest.update(f"{path.relative_to(folder)}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def find_damaged_file(folder: Path) -> str:
    """Find a file of an environment that is not as its wheel records it; empty without any."""
    for distribution in _list_distributions(folder):
        for file in distribution.files or ():
            if file.hash is not None and _hash_file(Path(str(file.locate())), file.hash.mode) != file.hash.value:
                return str(file)
    return ""


def _hash_file(path: Path, mode: str) -> str:
    """Hash a file as the record of a wheel does; empty if it is missing."""
    digest = hashlib.new(mode)
    try:
        with path.open("rb") as file:
            for chunk in read_chunks(file):
                digest.update(chunk)
    except OSError:
        return ""
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()


def list_packages(folder: Path) -> dict[str, Any]:
    """List the packages of an environment with their versions."""
    return dict(sorted((each.metadata["Name"], each.version) for each in _list_distributions(folder)))


def _list_distributions(folder: Path) -> Iterable[metadata.Distribution]:
    return metadata.distributions(path=[str(path) for path in folder.glob("lib/python*/site-packages")])


def remove(folder: Path) -> None:
    """Remove what is in the place of an environment: a part of one, a folder that is read-only, a file, a link."""
    aside = folder.with_name(f".{folder.name}.{time.monotonic_ns()}.out")
    with suppress(FileNotFoundError):
        folder.rename(aside)
    if aside.is_symlink() or not aside.is_dir():
        aside.unlink(missing_ok=True)
        return
    for root, _, _ in os.walk(aside):
        Path(root).chmod(0o700)
    shutil.rmtree(aside, ignore_errors=True)
