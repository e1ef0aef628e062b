"""Results of tuning to an archive and from one.

An archive holds ``manifest.json`` and then, in its order, the files that it lists with their sizes and content hashes,
each named ``<compiler>/<key>/<path>``. The hashes say that what comes is what was sent, and not who has sent it. So by
default only records are taken, which are text; a library is a program, and whoever takes it runs it.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from ngbkit import registry
from ngbkit.cluster.caches import contents, manifest, tar
from ngbkit.cluster.caches.cleaning import set_aside
from ngbkit.cluster.caches.contents import META, Kept, Place
from ngbkit.cluster.caches.manifest import Entry
from ngbkit.cluster.replies import plain
from ngbkit.errors import UsageError
from ngbkit.files import hash_file
from ngbkit.hardware import environment
from ngbkit.registry import version

#: More than this is not taken in.
MOST_BYTES = 1 << 34


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A result of tuning that came, and what became of it.

    Parameters
    ----------
    compiler, key
        What it is called.
    meta
        What its meta.json says.
    done
        What became of it, in words.
    """

    compiler: str
    key: str
    meta: dict[str, Any]
    done: str


def export(results: Sequence[Kept], place: Place, path: Path) -> None:
    """Write results of tuning to an archive. To be called with the device held.

    Raises
    ------
    UsageError
        It cannot be written.
    """
    # Hidden files are locks, and what was not yet finished.
    sources = {
        f"{result.compiler}/{result.key}/{file.relative_to(result.folder).as_posix()}": file
        for result in results
        for file in contents.files(result.folder)
        if not any(part.startswith(".") for part in file.relative_to(result.folder).parts)
    }
    entries = [
        Entry(name=name, bytes=sources[name].stat().st_size, hash=hash_file(sources[name]))
        for name in sorted(sources, key=lambda name: name.split("/"))
    ]
    told = manifest.write(entries, place)
    with tar.writing(path) as archive:
        archive.add(manifest.NAME, len(told), iter([told]))
        for entry in entries:
            with open(sources[entry.name], "rb") as read:
                archive.add(entry.name, entry.bytes, iter(partial(read.read, 1 << 20), b""))


def take_in(
    path: Path,
    place: Place,
    names: Sequence[str] = (),
    *,
    with_libraries: bool = False,
    anyway: bool = False,
    dry_run: bool = False,
) -> list[Arrival]:
    """Take results of tuning from an archive. To be called with the device held.

    All of it is read and checked before anything is put in its place.

    Parameters
    ----------
    path
        The archive.
    place
        The device that is to have them.
    names
        Which, as `Kept.answers_to` has it. Default: all.
    with_libraries
        Also what is no record: it is run when the network is measured next.
    anyway
        Also what was made on another chip, or with other versions.
    dry_run
        Only say what would become of each.

    Raises
    ------
    UsageError
        The file is no such archive, or was changed; or what is in it does not fit this device.
    """
    with _staging(place) as staging, tar.reading(path) as archive:
        told, entries = manifest.read(archive)
        _check_room(archive.name, entries, place)
        records = manifest.records(entries)
        for entry in entries:
            _receive(archive, entry, staging / entry.name if with_libraries or entry.name in records else None)
        if archive.next() is not None:
            raise archive.damaged("more files follow than its manifest lists")
        came = _read_results(archive, entries, records, staging)
        chosen = [one for one in came if not names or any(_kept(one, staging).answers_to(name) for name in names)]
        if names and not chosen:
            raise UsageError(f"nothing in {archive.name} answers to {' or '.join(names)}. {_contents(came)}")
        _check_fit(archive.name, told, chosen, place, anyway)
        return [_settle(one, staging, place, with_libraries, dry_run) for one in chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Came:
    """A result of an archive."""

    result: tuple[str, str]
    meta: dict[str, Any]
    has_records: bool
    has_libraries: bool

    @property
    def candidates(self) -> int:
        found: int = self.meta["candidates"]
        return found


def _kept(came: _Came, staging: Path) -> Kept:
    compiler, key = came.result
    return Kept(
        kind="tuning", key=key, folder=staging / compiler / key, bytes=0, used=0.0, compiler=compiler, about=came.meta
    )


@contextmanager
def _staging(place: Place) -> Iterator[Path]:
    """A folder for what comes, beside what there is, which only its owner can see into."""
    place.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    place.tuning.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.tuning, prefix=".", suffix=".in") as folder:
        yield Path(folder)


def _check_room(name: str, entries: Sequence[Entry], place: Place) -> None:
    """Also what is not wanted must be read: a small file may unpack to one without end."""
    size, free = sum(entry.bytes for entry in entries), shutil.disk_usage(place.tuning).free
    if size > MOST_BYTES:
        raise UsageError(f"{name} unpacks to {size} bytes, and {MOST_BYTES} are the most: export less, by names.")
    if size > free:
        raise UsageError(f"{name} unpacks to {size} bytes, and {free} are free in {place.state_dir}: make room.")


def _receive(archive: tar.Reader, entry: Entry, target: Path | None) -> None:
    """Read the file that is to come next, check it, and write it where it is wanted."""
    came = archive.next()
    if came != (entry.name, entry.bytes):
        raise archive.damaged(f"where {entry.name} of {entry.bytes} bytes should be there is {came}")
    digest = hashlib.blake2b(digest_size=16)
    if target is None:
        for piece in archive.pieces():
            digest.update(piece)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "xb") as write:
            for piece in archive.pieces():
                digest.update(piece)
                write.write(piece)
    if digest.hexdigest() != entry.hash:
        raise archive.damaged(f"{entry.name} has another hash than its {manifest.NAME} says")


def _read_results(
    archive: tar.Reader, entries: Sequence[Entry], records: Collection[str], staging: Path
) -> list[_Came]:
    found = []
    for result, group in groupby(entries, key=lambda entry: entry.result):
        meta = contents.read_meta(staging.joinpath(*result))
        if not contents.is_whole(meta):
            raise archive.damaged(f"{'/'.join(result)} has no {META} that tells its candidates and versions")
        kinds = {entry.name in records for entry in group if entry.name != "/".join([*result, META])}
        found.append(_Came(result=result, meta=meta, has_records=True in kinds, has_libraries=False in kinds))
    if len({one.result for one in found}) < len(found):
        raise archive.damaged("the files of one result are not together")
    return found


def _contents(came: Sequence[_Came]) -> str:
    held = (f"{one.result[0]} {one.result[1][:12]} ({plain(str(one.meta.get('network', '')))})" for one in came)
    return f"It holds {', '.join(held)}."


def _check_fit(name: str, told: dict[str, Any], came: Sequence[_Came], place: Place, anyway: bool) -> None:
    """Refuse what was made elsewhere or otherwise: a compiler would not find it again, or would measure it in vain."""
    lines = [*_other_chip(told, place), *(line for one in came for line in _other_versions(one))]
    unlike = [plain(line) for line in dict.fromkeys(lines)]
    if unlike and not anyway:
        raise UsageError(
            f"{name} does not fit device {place.device}: {'; '.join(unlike)}. What was tuned for something else is "
            "not found when a network is compiled here, or is slow; take it all the same by --anyway."
        )


def _other_chip(told: dict[str, Any], place: Place) -> Iterator[str]:
    kind, chip, here = told.get("accelerator"), told.get("chip"), environment.chip()
    if kind and place.accelerator and kind != place.accelerator:
        yield f"it was made on a device of kind {kind}, and this one is of kind {place.accelerator}"
    elif "cuda" not in (kind, place.accelerator) and chip != here:
        yield f"it was made on {chip}, and this is {here}"


def _other_versions(came: _Came) -> Iterator[str]:
    compiler = came.result[0]
    if compiler not in registry.names(registry.COMPILERS):
        yield f"there is no compiler {compiler} here"
    for package, told in came.meta["versions"].items():
        here = version(package) if package else None
        if here != told:
            has = "it is not installed" if here is None else f"is {here}"
            yield f"it was made with {package} {told}, and here {has}"


def _settle(came: _Came, staging: Path, place: Place, with_libraries: bool, dry_run: bool) -> Arrival:
    """Put one result in its place, unless what is there has tried as much."""
    compiler, key = came.result
    target = place.tuning / compiler / key
    lacks = came.has_libraries and not with_libraries
    here = contents.read_meta(target).get("candidates", 0) if target.exists() else -1
    if isinstance(here, int) and here >= came.candidates:
        done = f"left out: what is here has tried {here} candidates, and what came {came.candidates}"
    elif lacks and not came.has_records:
        done = "left out: it is nothing but libraries, which are programs: --with-libraries takes them"
    else:
        done = "imported" + (", in the place of what was here" if target.exists() else "")
        done += ", without its libraries, which are programs: --with-libraries takes them" if lacks else ""
        if not dry_run:
            _put(staging / compiler / key, target)
    return Arrival(compiler=compiler, key=key, meta=came.meta, done=done)


def _put(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    away = set_aside(target) if target.exists() else None
    source.replace(target)
    if away is not None:
        shutil.rmtree(away)
