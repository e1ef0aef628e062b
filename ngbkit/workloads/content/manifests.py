"""The manifests that a device keeps, by what was asked for: they tell a network from its files, without building it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ngbkit.files import write_atomically
from ngbkit.user_text import parse_json
from ngbkit.workloads.base import hash_json
from ngbkit.workloads.content.manifest import BuildManifest, FileSet

# The versions of one cell that are kept, as someone goes back and forth between them, and those of all.
_MOST_VERSIONS, _MOST = 8, 2000
_PACKAGES = "packages-"


@dataclass(frozen=True, slots=True)
class Manifests:
    """The manifests in a folder; what was checked once is not checked again by the same object."""

    folder: Path
    _checked: dict[str, str] = field(default_factory=dict)

    def find(self, recipe: str) -> tuple[str, str]:
        """Find the hash of the network that was asked for, if nothing that its build loaded has changed.

        Else the hash is empty, with what has changed since the latest build, or empty without one.
        """
        reason = ""
        for file in _list_latest(self.folder.glob(f"{recipe}-*.json")):
            change, problem = self._check(file)
            if not change and not problem:
                return file.stem.partition("-")[2], ""
            reason = reason or change or problem
        return "", reason

    def find_change(self, digest: str) -> str | None:
        """Find what has changed since the builds of a network; empty if nothing has, None if there was none."""
        changes = [self._check(file)[0] for file in self.folder.glob(f"*-{digest}.json")]
        return None if not changes else "" if "" in changes else changes[0]

    def list_own_files(self, content: str) -> list[str]:
        """List the files that a network was built from and that are of no installation, by name."""
        for file in self.folder.glob(f"*-{content}.json"):
            data = json.loads(file.read_text())
            del data["packages"]
            return sorted({file.name for file in BuildManifest.from_json(data).find_own_files()})
        return []

    def add(self, recipe: str, content: str, manifest: BuildManifest, packages: str) -> None:
        """Add the manifest of a build of a network; `packages` are those of `add_packages`."""
        path = self.folder / f"{recipe}-{content}.json"
        with write_atomically(path) as draft:
            draft.write_text(json.dumps({**manifest.to_json(), "packages": packages}))
        _evict(self.folder.glob(f"{recipe}-*.json"), _MOST_VERSIONS)
        _evict(self.folder.glob("*.json"), _MOST)

    def add_packages(self, paths: Iterable[str]) -> tuple[str, str]:
        """Hash the files of the packages that were imported before a build; return their name here and their hash."""
        states = dict(read_states(paths))
        name = f"{_PACKAGES}{hash_json(states)}"
        with suppress(OSError, ValueError, TypeError):
            return name, FileSet.from_json(parse_json(self._locate(name).read_text())).digest
        files = FileSet.read(states)
        with write_atomically(self._locate(name)) as draft:
            draft.write_text(json.dumps(files.to_json()))
        return name, files.digest

    def _locate(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def _check(self, file: Path) -> tuple[str, str]:
        """Return what has changed since a build, and what no file shows that it depends on; empty without any."""
        try:
            data = parse_json(file.read_text())
            packages = data.pop("packages")
            manifest = BuildManifest.from_json(data)
            change = self._check_packages(packages) or manifest.find_change()
        except (OSError, ValueError, TypeError, LookupError, AttributeError):
            return "the note of what it loaded is damaged", ""
        if not change:
            with suppress(OSError):
                for used in (file, self._locate(packages)):
                    os.utime(used)
        return change, next(iter(manifest.problems), "")

    def _check_packages(self, name: str) -> str:
        if name not in self._checked:
            checked = FileSet.from_json(parse_json(self._locate(name).read_text())).check()
            self._checked[name] = f"{checked} has changed" if isinstance(checked, str) else ""
        return self._checked[name]


def read_states(paths: Iterable[str]) -> Iterator[tuple[str, tuple[int, int, int]]]:
    """Read the size and the times of files, by which a change is seen without reading them."""
    for path in paths:
        with suppress(OSError):  # it was removed since
            status = Path(path).stat()
            yield path, (status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _list_latest(files: Iterable[Path]) -> list[Path]:
    times: dict[Path, float] = {}
    for file in files:
        with suppress(OSError):  # another process has just evicted it
            times[file] = file.stat().st_mtime
    return sorted(times, key=times.__getitem__, reverse=True)


def _evict(files: Iterable[Path], most: int) -> None:
    """Evict the files that were not used for longest."""
    for file in _list_latest(files)[most:]:
        with suppress(OSError):
            file.unlink()
