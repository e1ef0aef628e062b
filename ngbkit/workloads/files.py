"""File operations of workloads: their paths, the imports beside them, and the completion of paths."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from ngbkit.errors import UsageError
from ngbkit.user_text import parse_path


def normalise(path: Path) -> str:
    """Return the absolute path of a file; a link keeps its own name, as downloads of Hugging Face are links."""
    return os.path.normpath(path.absolute())


def extend_path(path: str) -> list[str]:
    """Add the folders of a Python file and of its package to the end of `sys.path`; return the new ones."""
    folder = find_working_folder()
    entries = [entry or folder for entry in sys.path]
    folders = [str(Path(path).parent), find_package_root(path)] if path else []
    additions = [entry for entry in dict.fromkeys(folders) if entry not in entries and Path(entry).is_dir()]
    if additions:
        sys.path[:] = [*(entry for entry in entries if entry != folder), *additions, folder]
    return additions


@contextmanager
def import_beside(path: str) -> Iterator[None]:
    """Let the Python file at `path` import the modules beside it for the block, and forget them afterwards."""
    entries, modules, additions = list(sys.path), dict(sys.modules), extend_path(path)
    if not additions:  # they can be imported already
        yield
        return
    importlib.invalidate_caches()
    names = {file.stem for addition in additions for file in Path(addition).iterdir() if _is_imported_from(file)}
    for name in modules:
        if name.partition(".")[0] in names:  # of a notebook, or of another folder
            del sys.modules[name]
    names.add(find_package(path).partition(".")[0])
    try:
        yield
    finally:
        sys.path[:] = entries
        for name in sys.modules.keys() - modules.keys():
            if name.partition(".")[0] in names:
                del sys.modules[name]
        sys.modules.update(modules)


def _is_imported_from(file: Path) -> bool:
    """Return whether an import of that name imports this file or folder, and not another one."""
    spec = PathFinder.find_spec(file.stem)
    return spec is not None and spec.origin in (str(file), str(file / "__init__.py"))


def find_package(path: str) -> str:
    """Find the package that a Python file is in; empty if there is none, or if imports find another of that name."""
    folder, root = Path(path).parent, find_package_root(path)
    parts = folder.relative_to(root).parts
    with suppress(ImportError, ValueError):
        spec = find_spec(parts[0]) if parts else None
        if spec is not None and str(Path(root, parts[0])) in (spec.submodule_search_locations or ()):
            return ".".join(parts)
    return ""


def find_package_root(path: str) -> str:
    """Find the folder in which the outermost package of a Python file is."""
    folder = Path(path).parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return str(folder)


def find_working_folder() -> str:
    """Find the working folder; empty if it was removed."""
    with suppress(FileNotFoundError):
        return str(Path.cwd())
    return ""


def find_script_folder() -> str:
    """Find the folder of the program of this process, which Python puts first on the path."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    return str(Path(find_working_folder(), main or "-").parent)


# Those of the start, as Python has them: warm servers of an engine have imported packages before a later change.
_PYTHON_PATH = frozenset(
    os.path.normpath(Path(find_working_folder(), entry))
    for entry in filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
)


def is_on_python_path(folder: str) -> bool:
    """Return whether the user's PYTHONPATH names a folder, so that its modules hide others everywhere."""
    return folder in _PYTHON_PATH


def list_local_packages() -> Iterator[str]:
    """Yield the packages of the working folder that this process imports in place of installed ones; engines do not."""
    folder = find_working_folder()
    entries = [entry or folder for entry in sys.path]
    if not folder or folder not in entries or is_on_python_path(folder):
        return
    installed = [entry for entry in entries[entries.index(folder) :] if entry != folder]
    for path in Path(folder).iterdir():
        spec = PathFinder.find_spec(path.name, installed) if (path / "__init__.py").is_file() else None
        if spec is not None and spec.origin is not None:
            yield path.name


def complete(prefix: str, suffix: str) -> Iterator[str]:
    """Yield the files ending in `suffix` whose path starts with `prefix`, and the folders to descend into."""
    folder = prefix[: prefix.rfind("/") + 1]
    start = prefix[len(folder) :]
    try:
        entries = sorted(parse_path(folder or ".").iterdir())
    except (OSError, UsageError):
        return
    for entry in entries:
        if not entry.name.startswith(start) or (entry.name.startswith(".") and not start):
            continue
        if entry.is_dir() and prefix:
            yield f"{folder}{entry.name}/"
        elif entry.name.lower().endswith(suffix) and entry.is_file():
            yield f"{folder}{entry.name}"
