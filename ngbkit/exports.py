"""The names that a package exports without importing their modules, so that the command line is parsed without them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from ngbkit.errors import MissingDependencyError


def export_lazily(
    package: str, modules: Mapping[str, str], extra: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Build ``__getattr__`` and ``__dir__`` of a package whose names are in those modules of it, empty for itself.

    A package that is missing is named with the extra of ngbkit that installs it.
    """

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = import_module(f"{package}.{modules[name] or name}")
        except ModuleNotFoundError as error:
            if not extra or error.name is None or error.name.startswith("ngbkit"):
                raise
            raise MissingDependencyError(error.name.replace("_", "-"), extra) from error
        return getattr(module, name) if modules[name] else module

    return find, lambda: sorted({*vars(sys.modules[package]), *modules})
