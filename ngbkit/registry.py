"""What is installed: compilers, workload sources and launchers, found by entry point, with a hint for what is missing.

A package adds a compiler by an entry point of its own, and nothing of ngbkit changes::

    [project.entry-points."ngbkit.compilers"]
    mine = "my_package.compiler:COMPILER"      # a ngbkit.compilers.base.Compiler
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from typing import Any

from ngbkit.errors import UnknownNameError

COMPILERS = "ngbkit.compilers"
WORKLOADS = "ngbkit.workloads"
LAUNCHERS = "ngbkit.launchers"


def names(group: str) -> list[str]:
    """The names that the entry points of `group` offer; nothing is imported."""
    return list(_entry_points(group))


def load(group: str, name: str) -> Any:
    """The object behind the entry point `name` of `group`.

    Raises
    ------
    UnknownNameError
        No entry point has that name; the error offers the nearest.
    """
    found = _entry_points(group)
    if name not in found:
        kind = {COMPILERS: "compiler", WORKLOADS: "workload source", LAUNCHERS: "launcher"}.get(group, group)
        raise UnknownNameError(kind, name, found, "`ngbkit compilers` lists them all." if group == COMPILERS else "")
    return _load(found[name])


def load_all(group: str) -> dict[str, Any]:
    """Every object of `group` by name; one that does not import is left out with a warning."""
    found: dict[str, Any] = {}
    for name, entry_point in _entry_points(group).items():
        try:
            found[name] = _load(entry_point)
        except Exception as error:  # noqa: BLE001  a stranger's plugin may raise anything
            warnings.warn(f"the {group} plugin {name!r} ({entry_point.value}) does not load: {error!r}", stacklevel=2)
    return found


def refresh() -> None:
    """Look at the installed packages again, after one was added while Python runs."""
    _entry_points.cache_clear()
    _load.cache_clear()


@cache
def _entry_points(group: str) -> Mapping[str, metadata.EntryPoint]:
    return unique(metadata.entry_points(group=group))


@cache
def _load(entry_point: metadata.EntryPoint) -> Any:
    return entry_point.load()


def unique(entry_points: metadata.EntryPoints) -> dict[str, metadata.EntryPoint]:
    """One entry point a name, the first that comes; a second one of another value is warned about and ignored."""
    found: dict[str, metadata.EntryPoint] = {}
    for entry_point in entry_points:
        first = found.setdefault(entry_point.name, entry_point)
        if first.value != entry_point.value:
            warnings.warn(
                f"two plugins are named {entry_point.name!r}: {first.value} is used, {entry_point.value} is ignored",
                stacklevel=2,
            )
    return found


def version(package: str) -> str | None:
    """The installed version of a distribution, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
