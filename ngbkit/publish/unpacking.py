"""Unpacks the archive of a site, of which nobody knows who wrote it: only plain files, only below its folder."""

from __future__ import annotations

import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from ngbkit.errors import UsageError
from ngbkit.user_text import format_size

# More than a site has, and less than fills a disk by mistake.
_MOST_FILES, _MOST_BYTES = 100_000, 20 * 10**9


def unpack(source: Path, folder: Path) -> None:
    """Unpack or copy a site into an empty folder; UsageError if it is none, too large, or leads out of there."""
    if source.is_dir():
        _copy(source, folder)
        return
    if not source.is_file():
        raise UsageError(f"there is no file {source}. Name archive.zip of a site, or the folder of a site.")
    try:
        with zipfile.ZipFile(source) as archive:
            members = archive.infolist()
            _check_size(source, [member.file_size for member in members], folder)
            for member in members:
                _check_member(source, member)
            for member in members:
                archive.extract(member, folder)
    except UsageError:
        raise
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, zlib.error) as error:
        raise UsageError(f"{source} cannot be read as an archive: {error}. Download it again.") from error


def _copy(source: Path, folder: Path) -> None:
    """Copy the plain files of a site; links may lead anywhere, and are left out."""
    files = list(_list_files(source))
    _check_size(source, [file.stat().st_size for file in files], folder)
    for file in files:
        target = folder / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)


def _list_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_symlink():
            continue
        if path.is_dir():
            yield from _list_files(path)
        elif path.is_file():
            yield path


def _check_size(source: Path, sizes: list[int], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    room = min(_MOST_BYTES, shutil.disk_usage(folder).free)
    if len(sizes) > _MOST_FILES or sum(sizes) > room:
        raise UsageError(
            f"{source} is too large: got {len(sizes)} files of {format_size(sum(sizes))}; expected at most "
            f"{_MOST_FILES:,} files of {format_size(room)}. Unpack it by hand if you trust it, and name its folder."
        )


def _check_member(source: Path, member: zipfile.ZipInfo) -> None:
    """Refuse a member that is written outside the folder, or that is a link or a device."""
    path = PurePosixPath(member.filename)
    mode = stat.S_IFMT(member.external_attr >> 16)
    is_outside = path.is_absolute() or ".." in path.parts or "\\" in member.filename
    if is_outside or mode not in (0, stat.S_IFREG, stat.S_IFDIR):
        kind = "leads out of its folder" if is_outside else "is no plain file"
        raise UsageError(
            f"invalid archive {source}: {member.filename!r} {kind}; expected files below the folder. ngbkit wrote no "
            "such archive: get it from its author."
        )
