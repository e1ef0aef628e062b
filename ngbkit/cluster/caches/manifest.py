"""The manifest of an archive of tuning results: the files it lists, and the names and sizes that are valid."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

from ngbkit import __version__
from ngbkit.cluster.caches import tar
from ngbkit.cluster.caches.contents import DeviceCaches
from ngbkit.errors import UsageError
from ngbkit.hardware import environment

FORMAT = 1
NAME = "manifest.json"
# Text of a known form, which no compiler can run. All other files are treated as parts of a library.
_RECORD_SUFFIXES = (".json", ".jsonl", ".csv", ".txt")
_NAME_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
_HASH = re.compile(r"[0-9a-f]{32}")
# A result is <compiler>/<key>.
_RESULT_PARTS = 2
_DEPTH = range(_RESULT_PARTS + 1, 9)
_MAX_MANIFEST_BYTES = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file of an archive: its name ``<compiler>/<key>/<path>``, its size in bytes and its content hash."""

    name: str
    bytes: int
    hash: str

    @property
    def result(self) -> tuple[str, str]:
        """The compiler and the key of its result."""
        compiler, key = self.name.split("/")[:_RESULT_PARTS]
        return compiler, key


def select_records(entries: Sequence[Entry]) -> set[str]:
    """Return the names of the files that are records: text outside of every library.

    A folder with any other file is a library as a whole, because a part of it would pass for a complete one.
    """
    programs = {entry.name for entry in entries if not entry.name.endswith(_RECORD_SUFFIXES)}
    libraries = {folder for name in programs for folder in _list_folders(name)}
    return {
        entry.name
        for entry in entries
        if entry.name not in programs and libraries.isdisjoint(_list_folders(entry.name))
    }


def _list_folders(name: str) -> list[str]:
    """List the folders of a file within its result."""
    return [parent.as_posix() for parent in PurePosixPath(name).parents if len(parent.parts) > _RESULT_PARTS]


def build(entries: Sequence[Entry], caches: DeviceCaches) -> bytes:
    """Build the manifest of these files, with the chip that they were tuned on."""
    for entry in entries:
        _check_name(entry.name)
    manifest = {
        "format": FORMAT,
        "ngbkit": __version__,
        "machine": platform.machine(),
        "chip": environment.read_chip(),
        "accelerator": caches.accelerator,
        "files": [asdict(entry) for entry in entries],
    }
    return json.dumps(manifest, indent=1, sort_keys=True).encode()


def read(archive: tar.Reader, files: Iterator[tuple[str, int, Iterator[bytes]]]) -> tuple[dict[str, Any], list[Entry]]:
    """Read the manifest, which must be the first of the files, and the valid entries that it lists, in their order."""
    name, size, content = next(files, ("no file", 0, iter(())))
    if name != NAME or size > _MAX_MANIFEST_BYTES:
        raise archive.refuse(f"its first file is {name!r} of {size} bytes, not a {NAME}")
    try:
        manifest = json.loads(b"".join(content))
        number = manifest["format"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise archive.refuse(f"invalid {NAME} ({error!r})") from error
    if number != FORMAT:
        raise UsageError(
            f"invalid format of {archive.name}: got {number!r}; this ngbkit reads {FORMAT}. Install a newer ngbkit."
        )
    try:
        entries = [Entry(**fields) for fields in manifest["files"]]
    except (KeyError, TypeError) as error:
        raise archive.refuse(f"no list of files in its {NAME} ({error!r})") from error
    for entry in entries:
        _check_entry(archive, entry)
    names = {entry.name.lower() for entry in entries}
    folders = {parent.as_posix() for name in names for parent in PurePosixPath(name).parents}
    if len(names) < len(entries) or names & folders:
        raise archive.refuse(f"its {NAME} lists a file twice, or also as a folder")
    return manifest, entries


def _check_entry(archive: tar.Reader, entry: Entry) -> None:
    if not isinstance(entry.name, str) or not isinstance(entry.hash, str) or type(entry.bytes) is not int:
        raise archive.refuse(f"wrong types in its {NAME}")
    if entry.bytes < 0 or not _HASH.fullmatch(entry.hash):
        raise archive.refuse(f"invalid size or hash of {entry.name!r}")
    try:
        _check_name(entry.name)
    except UsageError as error:
        raise archive.refuse(str(error)) from error


def _check_name(name: str) -> None:
    """Refuse all but nested plain names, so that no name leads out of its folder."""
    parts = name.split("/")
    if len(parts) not in _DEPTH or not all(_NAME_PART.fullmatch(part) for part in parts):
        raise UsageError(
            f"invalid name of a file in a tuning result: got {name!r}; expected <compiler>/<key>/<path> of ASCII "
            "letters, digits and _ . + -"
        )
