"""Export of tuning results to an archive, and their import.

An archive has ``manifest.json`` and then, in its order, the files that it lists with their sizes and content hashes,
each named ``<compiler>/<key>/<path>``. The hashes prove that the content arrived unchanged, not that its sender is
trusted. So by default only records are imported, which are text; a library is a program that the importer will run.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from ngbkit import registry
from ngbkit.cluster.caches import contents, manifest, tar
from ngbkit.cluster.caches.cleaning import rename_aside
from ngbkit.cluster.caches.contents import META, CacheItem, DeviceCaches
from ngbkit.cluster.caches.manifest import Entry
from ngbkit.cluster.replies import sanitize
from ngbkit.errors import UsageError
from ngbkit.files import hash_file
from ngbkit.hardware import environment
from ngbkit.registry import find_version

#: The most bytes that an archive may unpack to.
MAX_BYTES = 1 << 34


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """A tuning result of an archive with its meta.json, and what the import did with it, as a sentence."""

    compiler: str
    key: str
    meta: dict[str, Any]
    outcome: str


def export_results(results: Sequence[CacheItem], caches: DeviceCaches, path: Path) -> None:
    """Write tuning results to an archive; the caller has locked the device."""
    # Hidden files are locks and unfinished work.
    sources = {
        f"{result.compiler}/{result.key}/{file.relative_to(result.folder).as_posix()}": file
        for result in results
        for file in contents.walk_files(result.folder)
        if not any(part.startswith(".") for part in file.relative_to(result.folder).parts)
    }
    entries = [
        Entry(name=name, bytes=sources[name].stat().st_size, hash=hash_file(sources[name]))
        for name in sorted(sources, key=lambda name: name.split("/"))
    ]
    listing = manifest.build(entries, caches)
    with tar.create(path) as archive:
        tar.add(archive, manifest.NAME, len(listing), io.BytesIO(listing))
        for entry in entries:
            with open(sources[entry.name], "rb") as file:
                tar.add(archive, entry.name, entry.bytes, file)


def import_results(
    path: Path,
    caches: DeviceCaches,
    names: Sequence[str] = (),
    *,
    with_libraries: bool = False,
    anyway: bool = False,
    dry_run: bool = False,
) -> list[Import]:
    """Import tuning results from an archive; the caller has locked the device.

    The whole archive is checked before anything is installed. `names` select results as `CacheItem.matches` does;
    libraries, and results from another chip or other versions, are imported only on demand.
    """
    with _create_staging(caches) as staging, tar.open_archive(path) as archive:
        files = archive.read_files()
        listing, entries = manifest.read(archive, files)
        _check_space(archive.name, entries, caches)
        records = manifest.select_records(entries)
        for entry in entries:
            _receive(archive, files, entry, staging / entry.name if with_libraries or entry.name in records else None)
        if next(files, None) is not None:
            raise archive.refuse("it has more files than its manifest lists")
        results = _read_results(archive, entries, records, staging)
        selected = [result for result in results if not names or any(result.item.matches(name) for name in names)]
        if names and not selected:
            raise UsageError(f"no result in {archive.name} matches {' or '.join(names)}. It has {_list(results)}.")
        _check_fit(archive.name, listing, selected, caches, anyway)
        return [_install(result, caches, with_libraries, dry_run) for result in selected]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """A result of an archive, unpacked in the staging folder."""

    item: CacheItem
    has_records: bool
    has_libraries: bool

    @property
    def candidates(self) -> int:
        number: int = self.item.metadata["candidates"]
        return number


@contextmanager
def _create_staging(caches: DeviceCaches) -> Iterator[Path]:
    """Create a folder for the unpacked files beside the tuning results, which only its owner can read."""
    caches.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    caches.tuning.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=caches.tuning, prefix=".", suffix=".in") as folder:
        yield Path(folder)


def _check_space(name: str, entries: Sequence[Entry], caches: DeviceCaches) -> None:
    """Refuse an archive that unpacks to too much, counting also the files that are not imported."""
    size, free = sum(entry.bytes for entry in entries), shutil.disk_usage(caches.tuning).free
    if size > MAX_BYTES:
        raise UsageError(
            f"{name} unpacks to {size} bytes; expected at most {MAX_BYTES}. Export fewer results, by names."
        )
    if size > free:
        raise UsageError(f"{name} unpacks to {size} bytes, but {caches.state_dir} has {free} free. Free some space.")


def _receive(
    archive: tar.Reader, files: Iterator[tuple[str, int, Iterator[bytes]]], entry: Entry, target: Path | None
) -> None:
    """Read the next file, check it against its entry, and write it to `target` if there is one."""
    name, size, content = next(files, ("no file", 0, iter(())))
    if (name, size) != (entry.name, entry.bytes):
        raise archive.refuse(f"expected {entry.name} of {entry.bytes} bytes, got {name!r} of {size} bytes")
    digest = hashlib.blake2b(digest_size=16)
    if target is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
    with open(target, "xb") if target else nullcontext() as file:
        for chunk in content:
            digest.update(chunk)
            if file is not None:
                file.write(chunk)
    if digest.hexdigest() != entry.hash:
        raise archive.refuse(f"{entry.name} differs from its hash in {manifest.NAME}")


def _read_results(
    archive: tar.Reader, entries: Sequence[Entry], records: Collection[str], staging: Path
) -> list[_Result]:
    results = []
    for (compiler, key), group in groupby(entries, key=lambda entry: entry.result):
        folder = staging / compiler / key
        meta = contents.read_meta(folder)
        if not contents.is_complete(meta):
            raise archive.refuse(f"{compiler}/{key} has no {META} with its candidates and versions")
        kinds = {entry.name in records for entry in group if entry.name != f"{compiler}/{key}/{META}"}
        item = CacheItem(kind="tuning", key=key, folder=folder, bytes=0, used_at=0.0, compiler=compiler, metadata=meta)
        results.append(_Result(item=item, has_records=True in kinds, has_libraries=False in kinds))
    if len({(result.item.compiler, result.item.key) for result in results}) < len(results):
        raise archive.refuse("the files of one result are apart")
    return results


def _list(results: Sequence[_Result]) -> str:
    items = [result.item for result in results]
    return ", ".join(
        f"{item.compiler} {item.key[:12]} ({sanitize(str(item.metadata.get('network', '')))})" for item in items
    )


def _check_fit(
    name: str, listing: dict[str, Any], results: Sequence[_Result], caches: DeviceCaches, anyway: bool
) -> None:
    """Refuse results from another chip or other versions: a compiler would not find them, or they would be slow."""
    lines = [*_compare_chips(listing, caches), *(line for result in results for line in _compare_versions(result.item))]
    differences = [sanitize(line) for line in dict.fromkeys(lines)]
    if differences and not anyway:
        raise UsageError(
            f"{name} does not fit device {caches.device}: {'; '.join(differences)}. A compiler does not find foreign "
            "tuning results, or they are slow; import them with --anyway."
        )


def _compare_chips(listing: dict[str, Any], caches: DeviceCaches) -> Iterator[str]:
    kind, chip, local_chip = listing.get("accelerator"), listing.get("chip"), environment.read_chip()
    if kind and caches.accelerator and kind != caches.accelerator:
        yield f"it was tuned on a device of kind {kind}, this one is of kind {caches.accelerator}"
    elif "cuda" not in (kind, caches.accelerator) and chip != local_chip:
        yield f"it was tuned on {chip}, this is {local_chip}"


def _compare_versions(item: CacheItem) -> Iterator[str]:
    if item.compiler not in registry.list_names(registry.COMPILERS):
        yield f"this machine has no compiler {item.compiler}"
    for package, number in item.metadata["versions"].items():
        local_number = find_version(package) if package else None
        if local_number != number:
            yield f"it was tuned with {package} {number}, this machine has {local_number or 'none'}"


def _install(result: _Result, caches: DeviceCaches, with_libraries: bool, dry_run: bool) -> Import:
    """Move one result to the tuning results, unless the one there has tried as many candidates."""
    item = result.item
    target = caches.tuning / item.compiler / item.key
    candidates = contents.read_meta(target).get("candidates", 0) if target.exists() else -1
    without_libraries = result.has_libraries and not with_libraries
    if isinstance(candidates, int) and candidates >= result.candidates:
        outcome = f"skipped: the result here tried {candidates} candidates, the archived one {result.candidates}"
    elif without_libraries and not result.has_records:
        outcome = "skipped: it has only libraries, which are programs; --with-libraries imports them"
    else:
        outcome = "imported" + (", replacing the result here" if target.exists() else "")
        if without_libraries:
            outcome += ", without its libraries, which are programs; --with-libraries imports them"
        if not dry_run:
            _replace(item.folder, target)
    return Import(compiler=item.compiler, key=item.key, meta=dict(item.metadata), outcome=outcome)


def _replace(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = rename_aside(target) if target.exists() else None
    source.replace(target)
    if aside is not None:
        shutil.rmtree(aside)
