"""The packages that a compiler needs: installed, within the bounds of ngbkit's own metadata, and importable."""

from __future__ import annotations

import importlib
import platform
import re
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING

from ngbkit.registry import find_version

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

_EXTRAS = re.compile(r"ngbkit\[([\w,-]+)\]")
_PYTHON = re.compile(r'python_version >= "([\d.]+)"')
_INSTALLED = re.compile(r"/(?:site|dist)-packages/(?!ngbkit/)(\w+)")


def find_problem(packages: Sequence[str], install: str, others: Sequence[str] = ()) -> str:
    """Describe the packages that are missing, or older than the extras that `install` names ask for, and the remedy.

    It is empty if there are none. `install` installs the packages, and not the `others`, which are needed beside them.
    """
    bounds = read_bounds("torch")
    for extra in ",".join(_EXTRAS.findall(install)).split(","):
        if python := describe_newer_python(extra):
            return f"{python}, and this is {platform.python_version()}; use another environment"
        bounds = {**bounds, **read_bounds(extra)}
    versions = {package: find_version(package) for package in (*packages, *others)}
    missing = [package for package in packages if versions[package] is None]
    if missing := missing or [package for package in others if versions[package] is None]:
        # An extra may move what is there, such as a torch for CPUs: a package beside the first one is installed alone.
        is_absent = missing[0] in packages[:1] or not bounds.keys() >= set(missing)
        line = install if is_absent else _format_install(missing, bounds)
        return f"{', '.join(missing)} not installed; install with: {line}"
    old = [package for package, version in versions.items() if _is_old(str(version), bounds.get(package))]
    installed = " and ".join(f"{package} {versions[package]}" for package in old)
    needed = " and ".join(f"{package}{bounds[package]}" for package in old)
    return f"{installed} installed, but {needed} needed; install with: {_format_install(old, bounds)}" if old else ""


def _format_install(packages: Iterable[str], bounds: Mapping[str, SpecifierSet]) -> str:
    return " ".join(["pip install", *(f"'{package}{bounds.get(package, '')}'" for package in packages)])


def _is_old(version: str, bounds: SpecifierSet | None) -> bool:
    """Return whether a version is below its bounds; a vendor's preview of a release counts as that release."""
    from packaging.version import InvalidVersion, Version

    with suppress(InvalidVersion):
        parsed = Version(version)
        return bounds is not None and max(parsed, Version(parsed.base_version)) < find_least(bounds)
    return False


def find_least(bounds: SpecifierSet) -> Version:
    from packaging.version import Version

    return max((Version(each.version) for each in bounds if "<" not in each.operator), default=Version("0"))


@cache
def _read_requirements() -> tuple[Requirement, ...]:
    """Read the requirements of the installed ngbkit, those of its extras included; none where it is not installed."""
    from packaging.requirements import Requirement

    with suppress(metadata.PackageNotFoundError):
        return tuple(map(Requirement, metadata.requires("ngbkit") or ()))
    return ()


@cache
def read_bounds(extra: str) -> dict[str, SpecifierSet]:
    """Read the bounds of an extra of the installed ngbkit, the highest where it includes others."""
    bounds: dict[str, SpecifierSet] = {}
    for requirement in _read_requirements():
        if requirement.marker is not None and requirement.marker.evaluate({"extra": extra}):
            candidates = (bounds.get(requirement.name, requirement.specifier), requirement.specifier)
            bounds[requirement.name] = max(candidates, key=find_least)
    return bounds


def describe_newer_python(extra: str) -> str:
    """Describe the Python that a package of an extra needs, where this one is older; empty where it is not."""
    for requirement in _read_requirements():
        marker, version = requirement.marker, _PYTHON.search(str(requirement.marker))
        if marker is None or version is None or marker.evaluate({"extra": extra}):
            continue
        if marker.evaluate({"extra": extra, "python_version": version[1]}):
            return f"{requirement.name}{requirement.specifier} needs Python {version[1]} or newer"
    return ""


def describe_import(error: BaseException) -> str:
    """Describe the package whose import failed, and another that it does not fit; empty for any other error."""
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    passed = [(match[1], code.co_name) for code in codes if (match := _INSTALLED.search(code.co_filename))]
    imported = [module for module, function in passed if function == "<module>"]
    if not imported:
        return ""
    distributions = metadata.packages_distributions()
    module, other = imported[-1], passed[-1][0]
    source = error.name if isinstance(error, ImportError) else getattr(getattr(error, "obj", None), "__name__", None)
    if (root := str(source).partition(".")[0]) in distributions:
        other = root
    names = [distributions.get(each, [each])[0] for each in (module, other)]
    labels = [f"{name} {find_version(name) or ''}".strip() for name in names]
    return f"{labels[0]} cannot be imported" if module == other else f"{labels[0]} does not fit {labels[1]}"


def _check_imports(modules: Iterable[str]) -> str:
    """Import modules, and describe the first that fails; empty if all are imported."""
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # noqa: BLE001  a package may raise anything
            text = f"{type(error).__name__}: {' '.join(str(error).split())}"
            return ": ".join(filter(None, [describe_import(error), text]))
    return ""


if __name__ == "__main__":
    sys.exit(_check_imports(sys.argv[1:]) or None)
