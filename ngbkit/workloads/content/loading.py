"""The observation of a build: the modules that it imports, the files that it opens, the folders that it lists."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.machinery import BYTECODE_SUFFIXES, ModuleSpec, SourceFileLoader
from importlib.util import source_from_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from ngbkit.workloads.content import opened_files
from ngbkit.workloads.content.manifests import BuildManifest, FileSet, find_module, hash_folder

# Files of the kernel, and those of the C library for its own: no network depends on these.
_SYSTEM = (
    "/proc/",
    "/sys/",
    "/dev/",
    "/etc/ld.so",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
    "/etc/local",
)
_SHARED_MEMORY = "/dev/shm/"
_LISTINGS = frozenset({"os.listdir", "os.scandir"})
# Byte code has the time of its source in whole seconds.
_COARSE_S = 2.0
_UNSEEN = "this kernel or sandbox does not show which files it opens"


@dataclass(slots=True)
class Loading:
    """The observation of a build, in a child of its own: a process is observed once."""

    modules: dict[str, tuple[list[str], list[str]]] = field(default_factory=dict)
    # The files of modules that no search of folders finds, such as those of an editable installation.
    origins: dict[str, None] = field(default_factory=dict)
    folders: dict[str, None] = field(default_factory=dict)
    is_observing: bool = True
    # The folders of ngbkit's own files.
    own_folders: tuple[Path, ...] = ()
    _watch: opened_files.Watch | None = None

    @classmethod
    def start(cls, own_folders: Iterable[Path]) -> Loading:
        """Start to observe this process; what it does in its `own_folders` is left out."""
        loading = cls(own_folders=tuple(own_folders), _watch=opened_files.start())
        sys.meta_path.insert(0, _Finder(loading))
        sys.addaudithook(loading._note_listing)
        return loading

    def stop(self) -> BuildManifest:
        """Return what was loaded since the start."""
        self.is_observing = False
        opened = opened_files.OpenedFiles(others=(_UNSEEN,)) if self._watch is None else self._watch.stop()
        problems = list(opened.others)
        paths = [path for path in (*map(_find_source, opened.paths), *self.origins) if self._is_content(path)]
        folders = {path: hash_folder(path) for path in self.folders if self._is_content(path)}
        try:
            files = FileSet.read(path for path in paths if not Path(path).is_dir())
        except ValueError as error:
            files, problems = FileSet(), [*problems, str(error)]
        return BuildManifest(files=files, folders=folders, modules=self.modules, problems=problems)

    def note_module(self, name: str, places: Sequence[str], spec: ModuleSpec | None) -> None:
        """Note a module that was asked for, and the places that were searched."""
        folders = [os.path.abspath(place) for place in places]  # noqa: PTH100  empty for the working folder
        self.modules.setdefault(name, (folders, find_module(name, folders)))
        if spec is not None and spec.has_location and spec.origin:
            self.origins[spec.origin] = None

    def _is_content(self, path: str) -> bool:
        is_own = any(Path(path).is_relative_to(folder) for folder in self.own_folders)
        return not is_own and (not path.startswith(_SYSTEM) or path.startswith(_SHARED_MEMORY))

    def _note_listing(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _LISTINGS or not self.is_observing or _is_import(sys._getframe(1).f_code.co_filename):
            return
        path = arguments[0]
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")  # noqa: PTH115  of a descriptor
        path = os.path.abspath(os.fsdecode(path or "."))  # noqa: PTH100  without a request to it
        if not path.endswith("__pycache__"):  # any import may write there
            self.folders[path] = None


class _Finder:
    """Notes each search for a module, and leaves it to the finders after it."""

    def __init__(self, loading: Loading) -> None:
        self._loading = loading

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        later = sys.meta_path[sys.meta_path.index(self) + 1 :]
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in later)), None)
        if self._loading.is_observing:
            self._loading.note_module(name, list(path if path is not None else sys.path), spec)
        return spec


def _is_import(file: str) -> bool:
    """Return whether code of Python's import system lists a folder: its modules are noted by name."""
    return file.startswith("<frozen importlib") or f"{os.sep}importlib{os.sep}" in file


def _find_source(path: str) -> str:
    """Find the source of a module's byte code, which Python compares with it; else the file itself."""
    if not path.endswith(tuple(BYTECODE_SUFFIXES)):
        return path
    try:
        source = source_from_cache(path)
    except (NotImplementedError, ValueError):
        return path
    return source if Path(source).exists() else path


def list_imported() -> list[str]:
    """List the files of the modules that this process has imported, and of the libraries that it has loaded."""
    specs = (getattr(module, "__spec__", None) for module in list(sys.modules.values()))
    origins = [spec.origin for spec in specs if spec is not None and spec.has_location and spec.origin]
    return sorted({*filter(os.path.isabs, origins), *_list_libraries()})


def _list_libraries() -> Iterable[str]:
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.split(maxsplit=5)[5:]
            if path and ".so" in path[0] and path[0].startswith("/"):
                yield path[0].rstrip("\n")


def keep_fresh() -> None:
    """Keep Python from storing byte code of sources that have just changed.

    Byte code names its source by its size and the second of its change: another change in that second goes unseen, and
    the network that was asked for would not be the one that is built.
    """
    loader_class: Any = SourceFileLoader
    store = loader_class._cache_bytecode

    def store_settled(loader: SourceFileLoader, source: str, bytecode: str, data: Any) -> None:
        if Path(source).stat().st_mtime < time.time() - _COARSE_S:
            store(loader, source, bytecode, data)

    loader_class._cache_bytecode = store_settled
