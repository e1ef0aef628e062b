"""Tar archives of plain files: written with reproducible bytes by `tarfile`, read strictly, one header after another.

Reading does not use `tarfile.TarFile`: it loads headers of any length into memory, and ends silently at a damaged
header or without an end marker. Here a header is one block of 512 bytes that describes a plain file, or the archive is
refused. Nothing is unpacked to a path from an archive: the caller decides where the content goes.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from ngbkit.errors import UsageError
from ngbkit.files import write_atomically

_BLOCK = tarfile.BLOCKSIZE
_CHUNK_BYTES = 1 << 20
_GZIP_SUFFIXES = (".gz", ".tgz")
_GZIP_MAGIC = b"\x1f\x8b"
_PLAIN_TYPES = (tarfile.REGTYPE, tarfile.AREGTYPE)


@contextmanager
def create(path: Path) -> Iterator[tarfile.TarFile]:
    """Create an archive that replaces `path` if the block succeeds; compress it if the name ends in .gz or .tgz."""
    try:
        with (
            write_atomically(path) as temporary,
            open(temporary, "wb") as plain,
            # Neither a name nor a time: the same content gives the same file.
            gzip.GzipFile(filename="", mode="wb", fileobj=plain, mtime=0)
            if path.suffix in _GZIP_SUFFIXES
            else nullcontext(plain) as stream,
            tarfile.TarFile(
                fileobj=cast(BinaryIO, stream), mode="w", format=tarfile.USTAR_FORMAT, encoding="ascii", errors="strict"
            ) as archive,
        ):
            yield archive
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}.") from error


def add(archive: tarfile.TarFile, name: str, size: int, content: BinaryIO) -> None:
    """Append a file of `size` bytes, without an owner or a time."""
    header = tarfile.TarInfo(name)
    header.size, header.mode = size, 0o600
    try:
        archive.addfile(header, content)
    except ValueError as error:
        raise UsageError(f"invalid file name in an archive: got {name!r} ({error}).") from error
    except OSError as error:
        raise UsageError(
            f"cannot archive {name}: {error.strerror or 'it shrank while it was read'}. Try again."
        ) from error
    if content.read(1):
        raise UsageError(f"cannot archive {name}: it grew while it was read. Try again.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """An archive that is read from its beginning to its end; `name` is what errors call it."""

    name: str
    stream: BinaryIO

    def read_files(self) -> Iterator[tuple[str, int, Iterator[bytes]]]:
        """Yield the name, the size in bytes and the content of each file; skip content that the caller leaves."""
        while (block := self._read(_BLOCK)) != b"\0" * _BLOCK:
            try:
                header = tarfile.TarInfo.frombuf(block, "ascii", "strict")
            except (tarfile.HeaderError, UnicodeError, ValueError) as error:
                raise self.refuse(f"invalid header ({error})") from error
            if header.type not in _PLAIN_TYPES or header.size < 0:
                raise self.refuse(f"{header.name!r} is not a plain file")
            content = self._read_content(header.size)
            yield header.name, header.size, content
            for _ in content:
                continue

    def refuse(self, reason: str) -> UsageError:
        """Build the error for an invalid archive."""
        return UsageError(
            f"invalid archive {self.name}: {reason}; expected an unchanged file from `ngbkit cache export`."
        )

    def _read_content(self, size: int) -> Iterator[bytes]:
        for start in range(0, size, _CHUNK_BYTES):
            yield self._read(min(size - start, _CHUNK_BYTES))
        self._read(-size % _BLOCK)

    def _read(self, size: int) -> bytes:
        try:
            content = self.stream.read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise self.refuse(f"cannot read on ({error})") from error
        if len(content) < size:
            raise self.refuse("truncated")
        return content


@contextmanager
def open_archive(path: Path) -> Iterator[Reader]:
    """Open an archive for reading, compressed or not."""
    try:
        plain = open(path, "rb")  # noqa: SIM115  closed below, also if it is wrapped
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.") from error
    with plain:
        is_packed = plain.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        plain.seek(0)
        stream = cast(BinaryIO, gzip.GzipFile(fileobj=plain, mode="rb")) if is_packed else plain
        yield Reader(name=path.name, stream=stream)
