"""Files: artifacts by content hash, files that appear whole or not at all, scratch folders that end with a process."""

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

import psutil

from ngbkit.errors import DeviceError, UsageError

_DIGEST = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of files named by their content hash.

    Parameters
    ----------
    root
        The folder; made when something is first put there.
    """

    root: Path

    def path(self, digest: str) -> Path:
        """Where the file of that hash lies, or would lie.

        Raises
        ------
        UsageError
            It is not a content hash; a path that leaves the store cannot be made of one.
        """
        if not _DIGEST.fullmatch(digest):
            raise UsageError(f"{digest!r} is not a content hash; valid are 32 lower-case hex digits.")
        return self.root / digest[:2] / digest

    def have(self, digest: str) -> bool:
        return self.path(digest).is_file()

    def push(self, source: Path) -> str:
        """Take in a file; its content hash. A file that is here already is not copied again."""
        digest = hash_file(source)
        if not self.have(digest):
            with open(source, "rb") as read:
                self.receive(digest, iter(lambda: read.read(1 << 20), b""))
        return digest

    def receive(self, digest: str, chunks: Iterator[bytes]) -> Path:
        """Write a file that comes in pieces, and keep it only if it has the hash it was announced with.

        Raises
        ------
        DeviceError
            What came has another hash: it was cut or changed on the way.
        """
        with replacing(self.path(digest)) as temporary:
            came = hashlib.blake2b(digest_size=16)
            with open(temporary, "wb") as write:
                for chunk in chunks:
                    came.update(chunk)
                    write.write(chunk)
            if came.hexdigest() != digest:
                raise DeviceError(f"an artifact came with hash {came.hexdigest()} instead of {digest}: send it again.")
        return self.path(digest)

    def evict(self, keep_bytes: int) -> list[str]:
        """Delete the files that were used longest ago until at most `keep_bytes` are left; their hashes."""
        files = sorted(
            (file for file in self.root.glob("??/*") if file.is_file()), key=lambda file: file.stat().st_atime
        )
        total = sum(file.stat().st_size for file in files)
        gone = []
        for file in files:
            if total <= keep_bytes:
                break
            total -= file.stat().st_size
            file.unlink()
            gone.append(file.name)
        return gone


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place when the block ends well, and is removed when it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def hash_file(path: Path) -> str:
    """The content hash of a file: 32 hex digits of BLAKE2b."""
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as read:
        while chunk := read.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def make_scratch(home: Path) -> Path:
    """A new folder below `home`, which only its owner can read; those of processes that have ended are removed.

    A state folder may be shared by the nodes of a cluster: a process is looked for on its own machine only.
    """
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    clean_scratch(home)
    folder = home / f"{os.getpid()}-{secrets.token_hex(4)}-{platform.node()}"
    folder.mkdir(mode=0o700)
    return folder


def clean_scratch(home: Path, ending: int | None = None) -> None:
    """Remove the folders of processes that have ended, and those of the one that is `ending`."""
    for folder in home.iterdir() if home.is_dir() else ():
        owner, _, rest = folder.name.partition("-")
        here = rest.partition("-")[2] == platform.node()
        if here and owner.isdigit() and (int(owner) == ending or not psutil.pid_exists(int(owner))):
            shutil.rmtree(folder, ignore_errors=True)
