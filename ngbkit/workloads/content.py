"""The content of a network: all that decides its function, whatever its comments, its layout and its name."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ngbkit.errors import WorkloadError
from ngbkit.registry import find_version
from ngbkit.workloads import cell, files
from ngbkit.workloads.base import Workload, hash_json

# A folder beside a notebook with more files than this is no module of its cells.
_MOST_FILES = 2000


@dataclass(frozen=True, slots=True)
class Content:
    """The hash of a network's content; empty where it cannot be known, for a reason."""

    digest: str = ""
    reason: str = ""
    # Whether it has modules of this machine, for which another one may have others.
    is_local: bool = False


def hash_content(workload: Workload, folders: Iterable[str]) -> Content:
    """Hash the content of a network; `folders` are those of this machine that its imports search, in order.

    A cell is hashed by its syntax tree, with the modules in `folders` that it imports and the versions of the other
    packages. One that reads files or variables has no content that could be known here.
    """
    if workload.source != cell.SOURCE.name:
        return Content(workload.id)
    folder, root = (
        (str(Path(workload.path).parent), files.find_package_root(workload.path)) if workload.path else ("", "")
    )
    places = [Path(place) for place in dict.fromkeys([*folders, folder, root]) if place]
    modules: dict[str, str] = {}
    packages: dict[str, str] = {}
    sources = [workload.spec["source"]]
    try:
        if folder != root:  # of a package: the modules of relative imports
            sources += _read_modules([Path(folder)], modules)
        while sources:
            tree = ast.parse(sources.pop())
            if readers := cell.list_readers(tree):
                return Content(reason=f"it uses {', '.join(readers)}, and what that reads may change")
            for name in cell.list_modules(tree):
                place = next((place for place in places if _has_module(place, name)), None)
                if place is not None:
                    sources += _read_modules([place / f"{name}.py", place / name], modules)
                elif name not in packages:
                    packages[name] = find_version(name) or ""
    except (OSError, SyntaxError, ValueError, RecursionError, WorkloadError) as error:
        return Content(reason=f"its modules cannot be read: {error}")
    content = {
        "tree": ast.dump(ast.parse(workload.spec["source"])),
        "model": workload.spec["model"],
        "modules": sorted(modules.values()),
        "packages": packages,
        **workload.describe_choices(),
    }
    return Content(hash_json(content), is_local=bool(modules))


def _has_module(folder: Path, name: str) -> bool:
    return (folder / f"{name}.py").is_file() or next((folder / name).glob("*.py"), None) is not None


def _read_modules(paths: Iterable[Path], modules: dict[str, str]) -> Iterator[str]:
    """Yield the sources of files and of folders, once each; `modules` receives the hash of each by its path."""
    for path in paths:
        entries = sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.is_file() else []
        if len(entries) > _MOST_FILES:
            raise WorkloadError(f"{path} has more than {_MOST_FILES} Python files")
        for entry in entries:
            if str(entry) not in modules:
                content = entry.read_bytes()
                name = entry.relative_to(path.parent).as_posix()
                modules[str(entry)] = f"{name} " + hashlib.blake2b(content, digest_size=16).hexdigest()
                yield content.decode("utf-8", errors="replace")
