"""Files one after the other in a tar archive: plain files alone, written alike each time, and read with care.

tarfile would read an archive too, with links, devices, sparse files and headers as long as an archive likes to make
them. Here a header is 512 bytes that describe a plain file, or the archive is refused. Nothing is ever unpacked to a
path that an archive names: whoever reads decides what becomes of the pieces.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from ngbkit.errors import UsageError
from ngbkit.files import replacing

_BLOCK = tarfile.BLOCKSIZE
_PIECE = 1 << 20
_GZIPPED = (".gz", ".tgz")
_GZIP_MAGIC = b"\x1f\x8b"
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """An archive that is being written.

    Parameters
    ----------
    stream
        Where it goes.
    """

    stream: BinaryIO

    def add(self, name: str, size: int, pieces: Iterator[bytes]) -> None:
        """Put a file of `size` bytes behind those there are. Neither its owner nor its age is told.

        Raises
        ------
        UsageError
            Its name is too long for a tar archive, or it has not that size.
        """
        about = tarfile.TarInfo(name)
        about.size, about.mode = size, 0o600
        try:
            header = about.tobuf(tarfile.USTAR_FORMAT, "ascii", "strict")
        except (ValueError, UnicodeError) as error:
            raise UsageError(f"{name!r} cannot be a name in an archive: {error}.") from error
        self.stream.write(header)
        written = 0
        for piece in pieces:
            written += len(piece)
            self.stream.write(piece)
        if written != size:
            raise UsageError(f"{name} changed while it was read, from {size} bytes to {written}: try again.")
        self.stream.write(b"\0" * (-size % _BLOCK))

    def end(self) -> None:
        """Nothing follows."""
        self.stream.write(b"\0" * 2 * _BLOCK)


@contextmanager
def writing(path: Path) -> Iterator[Writer]:
    """An archive that takes its place when the block ends well; compressed where its name ends in .gz or .tgz.

    Raises
    ------
    UsageError
        It cannot be written there.
    """
    try:
        with replacing(path) as temporary, open(temporary, "wb") as plain:
            if path.suffix in _GZIPPED:
                # Neither a name nor a time in it: the same content gives the same file.
                with gzip.GzipFile(filename="", mode="wb", fileobj=plain, mtime=0) as packed:
                    yield from _written(cast(BinaryIO, packed))
            else:
                yield from _written(plain)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.") from error


def _written(stream: BinaryIO) -> Iterator[Writer]:
    writer = Writer(stream=stream)
    yield writer
    writer.end()


@dataclass(slots=True, kw_only=True)
class Reader:
    """An archive that is being read, from its begin to its end.

    Parameters
    ----------
    name
        What it is called in errors.
    stream
        Where it comes from.
    """

    name: str
    stream: BinaryIO
    _left: int = field(default=0)
    _padding: int = field(default=0)

    def next(self) -> tuple[str, int] | None:
        """The name and the size of the next file; None at the end.

        Raises
        ------
        UsageError
            What follows is no plain file.
        """
        if self._left or self._padding:
            raise RuntimeError("the file before was not read to its end")
        block = self._take(_BLOCK)
        if block == b"\0" * _BLOCK:
            return None
        try:
            about = tarfile.TarInfo.frombuf(block, "ascii", "strict")
        except (tarfile.HeaderError, UnicodeError, ValueError) as error:
            raise self.damaged(f"what should describe a file does not read ({error})") from error
        if about.type not in _PLAIN or about.size < 0:
            raise self.damaged(f"{about.name!r} is no plain file")
        self._left, self._padding = about.size, -about.size % _BLOCK
        return about.name, about.size

    def pieces(self) -> Iterator[bytes]:
        """The content of the file that `next` told of.

        Raises
        ------
        UsageError
            The archive ends in the middle of it.
        """
        while self._left:
            piece = self._take(min(self._left, _PIECE))
            self._left -= len(piece)
            yield piece
        self._take(self._padding)
        self._padding = 0

    def damaged(self, what: str) -> UsageError:
        """The error of an archive in which something is wrong."""
        return UsageError(f"{self.name} is no archive that `ngbkit cache export` wrote, or it was changed: {what}.")

    def _take(self, size: int) -> bytes:
        try:
            taken = self.stream.read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise self.damaged(f"it cannot be read on ({error})") from error
        if len(taken) < size:
            raise self.damaged("it ends too early")
        return taken


@contextmanager
def reading(path: Path) -> Iterator[Reader]:
    """An archive to read, compressed or not.

    Raises
    ------
    UsageError
        There is no such file.
    """
    try:
        plain = open(path, "rb")  # noqa: SIM115  closed below, also where it is wrapped
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    with plain:
        is_packed = plain.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        plain.seek(0)
        stream = cast(BinaryIO, gzip.GzipFile(fileobj=plain, mode="rb")) if is_packed else plain
        yield Reader(name=path.name, stream=stream)
