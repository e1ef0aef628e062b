"""Checks of the bytes of every file, of the archive, and of what no build made."""

from __future__ import annotations

import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ngbkit.publish.archive import ARCHIVE, is_archived
from ngbkit.publish.checks.check import CheckedItem, SiteCheck, VerifiedSite
from ngbkit.publish.manifest import FILE, SIGNATURE
from ngbkit.publish.target import hash_sha256


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
    for path in _list_others(site):
        yield CheckedItem(path, "the manifest does not list it: no build of this site made it")


def _list_others(site: VerifiedSite) -> list[str]:
    """List the files that no build made; hidden ones belong to the server or to version control."""
    paths = (path.relative_to(site.folder) for path in site.folder.rglob("*") if path.is_file())
    names = {path.as_posix() for path in paths if not any(part.startswith(".") for part in path.parts)}
    return sorted(names - site.manifest.files.keys() - {FILE, SIGNATURE, ARCHIVE})


def _check_archive(site: VerifiedSite) -> Iterator[CheckedItem]:
    path = site.folder / ARCHIVE
    if site.is_archive:
        return
    if not path.is_file():
        yield CheckedItem(ARCHIVE, "it is missing")
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


def _compare_entry(archive: zipfile.ZipFile, name: str, count: int, expected: set[str], folder: Path) -> str:
    if name not in expected:
        return "it is no file of the site"
    if count != 1:
        return "it is missing" if not count else f"it is there {count} times"
    file = folder / name
    size = archive.getinfo(name).file_size
    is_equal = file.is_file() and size == file.stat().st_size and archive.read(name) == file.read_bytes()
    return "" if is_equal else "it differs from the file of the site"


FILES = SiteCheck(name="files", binds="their SHA-256 in the manifest, which lists all files", run=_check_files)
ARCHIVED = SiteCheck(name="archive", binds="the archive has the files of the site", run=_check_archive)
