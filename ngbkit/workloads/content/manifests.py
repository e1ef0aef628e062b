"""The manifests of builds: what each loaded, by hash, and those that a device keeps, by what was asked for.

While all is unchanged, it is the same network. As ccache does for headers, the files are those that were seen to be
opened, and they are checked one by one.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import pkgutil
import re
import stat
import sysconfig
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ngbkit.files import hash_file, write_atomically
from ngbkit.user_text import parse_json
from ngbkit.workloads.base import hash_json

# The clocks of file systems are coarse: a file that changed shortly before it was hashed may change again unseen.
_COARSE_NS = 2_000_000_000
# Of a larger library only the first and last bytes are hashed, with its size: its build id is among them. All bytes of
# torch's own would take seconds.
_LARGE_LIBRARY, _SAMPLE = 16 << 20, 1 << 16
_LIBRARY = re.compile(r"\.so(\.[0-9.]+)?$")
MISSING = ""
"""The digest of a file that is not there."""
# The versions of one cell that are kept, as someone goes back and forth between them, and those of all.
_MOST_VERSIONS, _MOST = 8, 2000
_PACKAGES = "packages-"


def is_own(path: Path) -> bool:
    """Return whether a file is of no installation."""
    return not any(map(path.is_relative_to, _list_installed()))


@cache
def _list_installed() -> set[str]:
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return installed | {"/usr", "/lib", "/etc", str(Path(__file__).parents[2])}


@dataclass(frozen=True, slots=True)
class HashedFile:
    """A file's hash, and its state by which it is known to be unchanged without reading it."""

    digest: str
    size: int = 0
    modified_ns: int = 0
    changed_ns: int = 0
    inode: int = 0
    # When it was hashed.
    hashed_ns: int = 0

    @classmethod
    def read(cls, path: str) -> HashedFile:
        """Hash a file; ValueError if it is none that can be hashed."""
        now = time.time_ns()
        try:
            status = Path(path).stat()
            if not stat.S_ISREG(status.st_mode):
                raise ValueError(f"it reads {path}, which is no file")
            return cls(_hash(path, status), *_get_state(status), now)
        except (FileNotFoundError, NotADirectoryError):
            return cls(MISSING, hashed_ns=now)
        except OSError as error:
            raise ValueError(f"it reads {path}, and {error.strerror}") from None

    def check(self, path: str) -> HashedFile | None:
        """Return the file as it is now if its content is the same; None if it has changed."""
        try:
            state = _get_state(Path(path).stat())
        except OSError:
            return self if self.digest == MISSING else None
        is_settled = self.changed_ns < self.hashed_ns - _COARSE_NS
        if is_settled and state == (self.size, self.modified_ns, self.changed_ns, self.inode):
            return self
        with suppress(ValueError):
            now = HashedFile.read(path)
            return now if now.digest == self.digest else None
        return None


def _get_state(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _hash(path: str, status: os.stat_result) -> str:
    if status.st_size <= _LARGE_LIBRARY or not _LIBRARY.search(path):
        return hash_file(Path(path))
    with open(path, "rb") as file:
        parts = [file.read(_SAMPLE), str(status.st_size).encode()]
        file.seek(-_SAMPLE, os.SEEK_END)
        return hashlib.blake2b(b"".join([*parts, file.read()]), digest_size=16).hexdigest()


def hash_folder(path: str) -> str:
    """Hash the names in a folder."""
    try:
        return hash_json(sorted(name for name in os.listdir(path) if name != "__pycache__"))  # noqa: PTH208  the names are enough
    except OSError:
        return MISSING


def find_module(name: str, places: Iterable[str]) -> list[str]:
    """Find the file of a module in these places, or the folders of a package without one; empty if there is none."""
    folders: list[str] = []
    for place in places:
        finder: Any = pkgutil.get_importer(place)
        spec = finder.find_spec(name) if finder is not None else None
        if spec is not None and spec.loader is not None:
            return [spec.origin] if spec.origin else []
        folders += (spec.submodule_search_locations or ()) if spec is not None else ()
    return sorted(folders)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSet:
    """Files that are checked together: those of a build, or of the packages that a server had imported before."""

    files: Mapping[str, HashedFile] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """The hash of their contents."""
        return hash_json({path: file.digest for path, file in self.files.items()})

    def check(self) -> FileSet | str:
        """Return the files as they are now if none has changed; else the first that has."""
        checked: dict[str, HashedFile] = {}
        for path, file in self.files.items():
            now = file.check(path)
            if now is None:
                return path
            checked[path] = now
        return self if checked == self.files else FileSet(files=checked)

    def to_json(self) -> dict[str, Any]:
        return {path: list(astuple(file)) for path, file in self.files.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Sequence[Any]]) -> FileSet:
        return cls(files={path: HashedFile(*fields) for path, fields in data.items()})

    @classmethod
    def read(cls, paths: Iterable[str]) -> FileSet:
        """Hash files; ValueError names one that cannot be hashed."""
        return cls(files={path: HashedFile.read(path) for path in dict.fromkeys(paths)})


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildManifest:
    """The files of one build of a network, beside those of the packages that its server had imported before."""

    files: FileSet = field(default_factory=FileSet)
    # The hash of the names in each folder that was listed.
    folders: Mapping[str, str] = field(default_factory=dict)
    # The file of each module that was asked for, in the places that were searched: another one may come before it.
    modules: Mapping[str, tuple[Sequence[str], Sequence[str]]] = field(default_factory=dict)
    # What the build depends on and no file shows.
    problems: Sequence[str] = ()

    def find_own_files(self) -> list[Path]:
        """Find the files that are of no installation: another machine may have others."""
        return [
            path for name, file in self.files.files.items() if file.digest != MISSING and is_own(path := Path(name))
        ]

    def list_libraries(self) -> list[str]:
        """List the hashes of compiled code: no part of a network shows what that does."""
        return sorted({file.digest for path, file in self.files.files.items() if _LIBRARY.search(path)})

    def find_change(self) -> str:
        """Find what has changed since the build, in a phrase; empty if nothing has that a file shows."""
        importlib.invalidate_caches()
        for name, (places, origin) in self.modules.items():
            if find_module(name, places) != list(origin):
                return f"another module is {name} now" if origin else f"there is a module {name} now"
        for path, digest in self.folders.items():
            if hash_folder(path) != digest:
                return f"the files in {path} are others"
        changed = self.files.check()
        return f"{changed} has changed" if isinstance(changed, str) else ""

    def to_json(self) -> dict[str, Any]:
        return {
            "files": self.files.to_json(),
            "folders": dict(self.folders),
            "modules": {name: list(map(list, pair)) for name, pair in self.modules.items()},
            "problems": list(self.problems),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BuildManifest:
        modules = {name: (places, origin) for name, (places, origin) in data["modules"].items()}
        return cls(**{**data, "files": FileSet.from_json(data["files"]), "modules": modules})


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
