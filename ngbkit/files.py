"""Files: artifacts named by content hash, atomic writes, and scratch folders that are removed with their process."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import psutil

from ngbkit import options
from ngbkit.errors import DeviceError, UsageError

_DIGEST = re.compile(r"[0-9a-f]{32}")
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of files named by their content hash; the first file added creates it."""

    root: Path

    def locate(self, digest: str) -> Path:
        """Return the path of the file with that hash, whether it exists or not."""
        if not _DIGEST.fullmatch(digest):  # a path in here could lead out of the store
            raise UsageError(f"invalid content hash {digest!r}; expected 32 lower-case hex digits.")
        return self.root / digest[:2] / digest

    def contains(self, digest: str) -> bool:
        return self.locate(digest).is_file()

    def add(self, source: Path) -> str:
        """Copy a file into the store, unless the store contains it, and return its content hash."""
        digest = hash_file(source)
        if not self.contains(digest):
            with open(source, "rb") as file:
                self.receive(digest, read_chunks(file))
        return digest

    def move(self, source: Path) -> str:
        """Move a file of the same file system into the store and return its content hash."""
        digest = hash_file(source)
        path = self.locate(digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        source.chmod(0o600)  # as a copy has it
        source.replace(path)
        return digest

    def receive(self, digest: str, chunks: Iterator[bytes]) -> Path:
        """Write a file from chunks and return its path; raise `DeviceError` if its hash is not the announced one."""
        path = self.locate(digest)
        with write_atomically(path) as draft:
            hasher = hashlib.blake2b(digest_size=16)
            with open(draft, "wb") as file:
                for chunk in chunks:
                    hasher.update(chunk)
                    file.write(chunk)
            if hasher.hexdigest() != digest:
                raise DeviceError(f"corrupt artifact: got hash {hasher.hexdigest()}; expected {digest}. Send it again.")
        return path

    def evict(self, keep_bytes: int) -> list[str]:
        """Delete the least recently used files until at most `keep_bytes` remain, and return their hashes."""
        files = sorted(
            (file for file in self.root.glob("??/*") if file.is_file()), key=lambda file: file.stat().st_atime
        )
        total = sum(file.stat().st_size for file in files)
        evicted = []
        for file in files:
            if total <= keep_bytes:
                break
            total -= file.stat().st_size
            file.unlink()
            evicted.append(file.name)
        return evicted


@contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Yield a draft beside `path` that replaces it when the block succeeds and is removed when the block raises.

    An error of the system names the file, also that of a full disk, which has no name of its own.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        draft = Path(name)
        try:
            yield draft
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def hash_file(path: Path) -> str:
    """Hash a file's content: 32 hex digits of BLAKE2b, read in chunks, as it may be larger than memory."""
    hasher = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        for chunk in read_chunks(file):
            hasher.update(chunk)
    return hasher.hexdigest()


def make_scratch(home: Path) -> Path:
    """Create a private folder below `home` for this process, and remove those of processes that have ended.

    Several machines may share a state folder; a machine removes only the folders of its own processes.
    """
    clean_scratch(options.make_private(home))
    folder = home / f"{os.getpid()}-{secrets.token_hex(4)}-{platform.node()}"
    folder.mkdir(mode=0o700)
    return folder


def clean_scratch(home: Path, ending: int | None = None) -> None:
    """Remove the folders of processes that have ended, and those of the process `ending`."""
    for folder in home.iterdir() if home.is_dir() else ():
        pid, _, rest = folder.name.partition("-")
        is_local = rest.partition("-")[2] == platform.node()
        if is_local and pid.isdigit() and (int(pid) == ending or not psutil.pid_exists(int(pid))):
            shutil.rmtree(folder, ignore_errors=True)


def read_chunks(file: BinaryIO) -> Iterator[bytes]:
    """Read a binary file in chunks of 1 MiB."""
    return iter(lambda: file.read(_CHUNK_BYTES), b"")
