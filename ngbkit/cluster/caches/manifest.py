"""What an archive of tuning results says that it holds, and the names and sizes that it may say."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

from ngbkit import __version__
from ngbkit.cluster.caches import tar
from ngbkit.cluster.caches.contents import Place
from ngbkit.errors import UsageError
from ngbkit.hardware import environment

FORMAT = 1
NAME = "manifest.json"
# What cannot be a program, whatever takes it: text of a known form. All else is taken as a library is.
_RECORDS = (".json", ".jsonl", ".csv", ".txt")
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
_HASH = re.compile(r"[0-9a-f]{32}")
# A result is <compiler>/<key>.
_RESULT_PARTS = 2
_DEPTH = range(_RESULT_PARTS + 1, 9)
_MOST_MANIFEST_BYTES = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file of an archive.

    Parameters
    ----------
    name
        ``<compiler>/<key>/<path>``.
    bytes, hash
        Its size and its content hash.
    """

    name: str
    bytes: int
    hash: str

    @property
    def result(self) -> tuple[str, str]:
        """The compiler and the key of the result that it belongs to."""
        compiler, key = self.name.split("/")[:_RESULT_PARTS]
        return compiler, key


def records(entries: Sequence[Entry]) -> set[str]:
    """The names of those files that are records: text, and no part of a library.

    A folder of a result that holds anything else is a library as a whole, for half of one would be taken for a whole.
    """
    programs = {entry.name for entry in entries if not entry.name.endswith(_RECORDS)}
    folders = {parent for name in programs for parent in _folders(name)}
    return {entry.name for entry in entries if entry.name not in programs and not folders & set(_folders(entry.name))}


def _folders(name: str) -> list[str]:
    """The folders within its result that a file lies in."""
    return [parent.as_posix() for parent in PurePosixPath(name).parents if len(parent.parts) > _RESULT_PARTS]


def write(entries: Sequence[Entry], place: Place) -> bytes:
    """What to tell of the files, and of the device that they are from.

    Raises
    ------
    UsageError
        A file has a name that would not be taken in.
    """
    for entry in entries:
        _check_name(entry.name)
    manifest = {
        "format": FORMAT,
        "ngbkit": __version__,
        "machine": platform.machine(),
        "chip": environment.chip(),
        "accelerator": place.accelerator,
        "files": [asdict(entry) for entry in entries],
    }
    return json.dumps(manifest, indent=1, sort_keys=True).encode()


def read(archive: tar.Reader) -> tuple[dict[str, Any], list[Entry]]:
    """What an archive tells, and its files in their order: plain names below each other, each once.

    Raises
    ------
    UsageError
        It tells nothing that can be read, or of files that must not be.
    """
    name, size = archive.next() or ("nothing", 0)
    if name != NAME or size > _MOST_MANIFEST_BYTES:
        raise archive.damaged(f"it begins with {name!r} of {size} bytes and not with a {NAME}")
    try:
        manifest = json.loads(b"".join(archive.pieces()))
        found = manifest["format"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise archive.damaged(f"its {NAME} does not read ({error!r})") from error
    if found != FORMAT:
        raise UsageError(f"{archive.name} has format {found!r}; this ngbkit reads {FORMAT}. Install a newer ngbkit.")
    try:
        entries = [Entry(**about) for about in manifest["files"]]
    except (KeyError, TypeError) as error:
        raise archive.damaged(f"its {NAME} lists no files ({error!r})") from error
    for entry in entries:
        _check_entry(archive, entry)
    names = {entry.name.lower() for entry in entries}
    folders = {parent.as_posix() for name in names for parent in PurePosixPath(name).parents}
    if len(names) < len(entries) or names & folders:
        raise archive.damaged(f"its {NAME} lists a file twice, or as a folder too")
    return manifest, entries


def _check_entry(archive: tar.Reader, entry: Entry) -> None:
    if not isinstance(entry.name, str) or not isinstance(entry.hash, str) or type(entry.bytes) is not int:
        raise archive.damaged(f"its {NAME} has the wrong types")
    if entry.bytes < 0 or not _HASH.fullmatch(entry.hash):
        raise archive.damaged(f"the size or the hash of {entry.name!r} is none")
    try:
        _check_name(entry.name)
    except UsageError as error:
        raise archive.damaged(str(error)) from error


def _check_name(name: str) -> None:
    """Nothing but plain names below each other: no way leads out of the folder that they are put into."""
    parts = name.split("/")
    if len(parts) not in _DEPTH or not all(_PLAIN.fullmatch(part) for part in parts):
        raise UsageError(f"{name!r} cannot be a file of a result of tuning")
