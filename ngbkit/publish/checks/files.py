"""Checks of the bytes of every file, of the archive, and of what no build made."""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ngbkit.publish.archive import ARCHIVE, is_archived
from ngbkit.publish.checks.check import CheckedItem, SiteCheck, VerifiedSite
from ngbkit.publish.instructions import README
from ngbkit.publish.manifest import FILE, SIGNATURE
from ngbkit.publish.target import hash_sha256

# Of the format of zip: the header of a file, its entry in the directory, and what ends the archive.
_HEADER_BYTES, _ENTRY_BYTES, _END_BYTES = 30, 46, 22
_LARGE_BYTES = 0xFFFFFFFF  # from here on it has other headers
# The line of a page, or of the README, that installs ngbkit.
_INSTALLED = re.compile(rb"ngbkit\[all\]==([^\s\"'&<]+)")


def _check_files(site: VerifiedSite) -> Iterator[CheckedItem]:
    for path, digest in site.manifest.files.items():
        file = site.folder / path
        if site.is_archive and not file.is_file() and not is_archived(path):
            yield CheckedItem(path, obstacle="an archive has no pages: verify the folder of the site too")
        elif not file.is_file():
            yield CheckedItem(path, "it is missing")
        elif (actual := hash_sha256(file)) != digest:
            yield CheckedItem(path, f"it was changed: its SHA-256 is {actual[:8]}…; expected {digest[:8]}…")
        else:
            yield CheckedItem(path)
    for other in sorted(site.folder.rglob("*")):
        name = other.relative_to(site.folder)
        # Hidden ones belong to the server or to version control.
        if difference := "" if any(part.startswith(".") for part in name.parts) else _find_stranger(site, other):
            yield CheckedItem(name.as_posix(), difference)


def _find_stranger(site: VerifiedSite, path: Path) -> str:
    """Return why no build of the site made a path; empty for its files and their folders."""
    if path.is_symlink():
        return "it is a link: no build of this site made it"
    if path.is_dir():
        return "" if any(path.iterdir()) else "it is an empty folder: no build of this site made it"
    if not path.is_file():
        return "it is no plain file: no build of this site made it"
    is_listed = path.relative_to(site.folder).as_posix() in {*site.manifest.files, FILE, SIGNATURE, ARCHIVE}
    return "" if is_listed else "the manifest does not list it: no build of this site made it"


def _check_versions(site: VerifiedSite) -> Iterator[CheckedItem]:
    version = site.manifest.version
    for name in [path for path in site.manifest.files if path == README or path.endswith(".html")]:
        for other in {match[1].decode(errors="replace") for match in _INSTALLED.finditer(site.read(name) or b"")}:
            difference = f"it installs ngbkit {other}; the manifest says {version}"
            yield CheckedItem(name, "" if other == version else difference)


def _check_archive(site: VerifiedSite) -> Iterator[CheckedItem]:
    path = site.archive
    if not path.is_file():
        if not site.is_archive:
            yield CheckedItem(ARCHIVE, "it is missing")
        return
    try:
        yield CheckedItem(ARCHIVE, _find_gap(path))
    except (zipfile.BadZipFile, struct.error, NotImplementedError, ValueError, OSError) as error:
        yield CheckedItem(ARCHIVE, f"it cannot be read: {error}")
        return
    if site.is_archive:
        return
    expected = {name for name in site.manifest.files if is_archived(name)}
    expected |= {name for name in (FILE, SIGNATURE) if (site.folder / name).is_file()}
    try:
        with zipfile.ZipFile(path) as archive:
            counts = Counter(archive.namelist())
            for name in sorted(expected | counts.keys()):
                difference = _compare_entry(archive, name, counts[name], expected, site.folder)
                yield CheckedItem(f"{ARCHIVE}/{name}", difference)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, zlib.error, OSError) as error:
        yield CheckedItem(ARCHIVE, f"it cannot be read: {error}")


def _find_gap(path: Path) -> str:
    """Return where an archive has bytes that belong to no file; empty if it has none."""
    if path.stat().st_size >= _LARGE_BYTES:
        return ""
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        end = 0
        for entry in sorted(archive.infolist(), key=lambda entry: entry.header_offset):
            if entry.header_offset != end:
                return "it has bytes before its files, or between them"
            file.seek(end + _HEADER_BYTES - 4)
            end += _HEADER_BYTES + sum(struct.unpack("<HH", file.read(4))) + entry.compress_size
        entries = [(len(entry.filename.encode()), len(entry.extra), len(entry.comment)) for entry in archive.infolist()]
        directory = sum(_ENTRY_BYTES + name + extra + comment for name, extra, comment in entries)
        if archive.start_dir != end or end + directory + _END_BYTES != path.stat().st_size or archive.comment:
            return "it has bytes after its files"
        return ""


def _compare_entry(archive: zipfile.ZipFile, name: str, count: int, expected: set[str], folder: Path) -> str:
    if name not in expected:
        return "it is no file of the site"
    if count != 1:
        return "it is missing" if not count else f"it is there {count} times"
    file = folder / name
    size = archive.getinfo(name).file_size
    is_equal = file.is_file() and size == file.stat().st_size and archive.read(name) == file.read_bytes()
    return "" if is_equal else "it differs from the file of the site"


CHECKS = (
    SiteCheck(name="files", binds="their SHA-256 in the manifest, which lists all files", run=_check_files),
    SiteCheck(name="archive", binds="the archive has the files of the site", run=_check_archive),
    SiteCheck(name="versions", binds="the version of ngbkit in the manifest", run=_check_versions),
)
