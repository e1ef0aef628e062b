"""The files behind workloads: their content hashes, the local store that keeps them, their names for Tab."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from ngbkit import options

_CHUNK = 1 << 20


def digest(path: Path) -> str:
    """The content hash of a file, 32 hex digits of BLAKE2b; it is read in pieces, so it may be larger than memory."""
    hasher = hashlib.blake2b(digest_size=16)
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            hasher.update(chunk)
    return hasher.hexdigest()


def store() -> Path:
    """The local folder of artifacts, laid out as `ngbkit.files.Store` has it; made where it is missing."""
    folder = options.state_dir() / "artifacts"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def keep(path: Path) -> tuple[str, Path]:
    """Move a file, written on the same file system, into the store; its content hash and its new path."""
    name = digest(path)
    kept = store() / name[:2] / name
    kept.parent.mkdir(exist_ok=True)
    path.replace(kept)
    return name, kept


def link(source: Path, target: Path) -> None:
    """Make `target` the same file as `source`, without a copy: a hard link where that can be, else a symbolic one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.hardlink_to(source.resolve())
    except OSError:  # another file system, or one without hard links
        target.symlink_to(source.resolve())


def copy(source: Path, target: Path) -> None:
    """Copy a file's content. For ONNX's external data: onnx refuses it where it is a hard or a symbolic link."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def complete(prefix: str, suffix: str) -> Iterator[str]:
    """The files ending in `suffix` whose path starts with `prefix`, and the folders on the way to more of them."""
    folder = prefix[: prefix.rfind("/") + 1]
    start = prefix[len(folder) :]
    try:
        entries = sorted(Path(folder or ".").expanduser().iterdir())
    except OSError:
        return
    for entry in entries:
        if not entry.name.startswith(start) or (entry.name.startswith(".") and not start):
            continue
        if entry.is_dir() and prefix:
            yield f"{folder}{entry.name}/"
        elif entry.name.lower().endswith(suffix) and entry.is_file():
            yield f"{folder}{entry.name}"
