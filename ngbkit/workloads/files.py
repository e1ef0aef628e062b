"""File operations of workloads: links and copies of artifacts, and the completion of paths."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ngbkit.errors import UsageError
from ngbkit.user_text import parse_path


def link(source: Path, target: Path) -> None:
    """Link `target` to `source`, without a copy: by a hard link if possible, else by a symbolic link."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.hardlink_to(source.resolve())
    except OSError:  # another file system, or one without hard links
        target.symlink_to(source.resolve())


def copy(source: Path, target: Path) -> None:
    """Copy a file's content, as ONNX's external data needs: onnx rejects a hard or a symbolic link."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def normalise(path: Path) -> str:
    """Return the absolute path of a file; a link keeps its own name, as downloads of Hugging Face are links."""
    return os.path.normpath(path.absolute())


def complete(prefix: str, suffix: str) -> Iterator[str]:
    """Yield the files ending in `suffix` whose path starts with `prefix`, and the folders to descend into."""
    folder = prefix[: prefix.rfind("/") + 1]
    start = prefix[len(folder) :]
    try:
        entries = sorted(parse_path(folder or ".").iterdir())
    except (OSError, UsageError):
        return
    for entry in entries:
        if not entry.name.startswith(start) or (entry.name.startswith(".") and not start):
            continue
        if entry.is_dir() and prefix:
            yield f"{folder}{entry.name}/"
        elif entry.name.lower().endswith(suffix) and entry.is_file():
            yield f"{folder}{entry.name}"
