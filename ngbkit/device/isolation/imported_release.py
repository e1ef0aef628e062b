"""The release that a child has really imported, compared with that of its column."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from importlib import metadata
from itertools import zip_longest

from ngbkit.compilers.base import Compiler
from ngbkit.errors import UnsupportedError
from ngbkit.sweep.column import Column

_NUMBERS = re.compile(r"\d+(\.\d+)*")
# How a module reports its version, and that of the library that it loads: ONNX Runtime, OpenVINO.
_VERSIONS = ("__version__", "get_version_string", "get_version")


class OtherReleaseError(UnsupportedError):
    """A child imports another version than its column names."""


def check_release(column: Column, compiler: Compiler) -> dict[str, str]:
    """Return the version that this process has imported, as a fact; OtherReleaseError if it is not the column's."""
    versions = list_imported_versions(compiler.distribution) if column.release else []
    for version in versions:
        if not is_version(version, column.release):
            raise OtherReleaseError(f"the environment of {column.label} has {compiler.distribution} {version}")
    return {"release": versions[-1]} if versions else {}


def is_version(version: str, release: str) -> bool:
    """Return whether a version, as a library reports it, is that release: 1.22.0+cpu is 1.22."""
    numbers = [match[0].split(".") for match in map(_NUMBERS.match, (version, release)) if match]
    return all(int(first) == int(second) for first, second in zip_longest(numbers[0], numbers[-1], fillvalue=0))


def list_imported_versions(distribution: str) -> list[str]:
    """List the versions of a distribution that its installation and the modules report which this process imported."""
    installed = metadata.distribution(distribution)
    modules = {file.parts[0].partition(".")[0] for file in installed.files or ()}
    versions = [installed.version]
    for module in (sys.modules[name] for name in sorted(modules & sys.modules.keys())):
        reported = (getattr(module, name, None) for name in _VERSIONS)
        with suppress(TypeError):  # a function of another kind
            versions += [str(value() if callable(value) else value) for value in reported if value]
    return versions
