"""Every package that ngbkit imports is declared in pyproject.toml, and not only brought along by another."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

import tomllib
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pythons import DEVICE_SIDE, VERSIONS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FILES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "ngbkit").rglob("*.py"))
# The errors of onnx are those of protobuf.
BROUGHT_ALONG = {"google"}
# Only type checkers import them.
FOR_TYPES = {"_typeshed", "typing_extensions"}


def list_modules(file: str) -> Iterator[str]:
    """List the top-level modules that a file imports, in functions too."""
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


@cache
def find_declared() -> frozenset[str]:
    texts = [*PROJECT["dependencies"], *(text for extra in PROJECT["optional-dependencies"].values() for text in extra)]
    return frozenset(canonicalize_name(Requirement(text).name) for text in texts)


@cache
def find_distributions() -> dict[str, list[str]]:
    return {module: list(names) for module, names in metadata.packages_distributions().items()}


def test_the_classifiers_name_the_pythons_that_are_tested() -> None:
    """The classifiers list the tested Pythons, from the oldest that is required."""
    prefix = "Programming Language :: Python :: "
    versions = [text.removeprefix(prefix) for text in PROJECT["classifiers"] if text.startswith(f"{prefix}3.")]

    assert sorted(VERSIONS) == versions
    assert f">={versions[0]}" == PROJECT["requires-python"]


def test_the_tests_of_the_device_side_exist() -> None:
    """Other versions of Python run these files and folders, which a rename must follow."""
    assert [] == [path for path in DEVICE_SIDE if not (ROOT / path).exists()]


def find_undeclared(file: str) -> set[str]:
    """Find the imported modules whose distribution, or own name where it is not installed, no extra names."""
    modules = set(list_modules(file)) - {"ngbkit", *BROUGHT_ALONG, *FOR_TYPES, *sys.stdlib_module_names}
    distributions = {module: find_distributions().get(module, [module]) for module in modules}
    return {
        module
        for module, names in distributions.items()
        if not {canonicalize_name(name) for name in names} & find_declared()
    }


def test_imports_are_declared() -> None:
    """Every package that a file imports is a dependency or in an extra."""
    assert {} == {file: undeclared for file in FILES if (undeclared := find_undeclared(file))}


def test_make_says_which_python_it_needs(tmp_path: Path) -> None:
    """A Python that ends without a word, as the shim of pyenv where it lacks its programs, is named."""
    words = ["make", "environment", "PYTHON=false", f"VENV={tmp_path / 'venv'}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)

    assert "ngbkit needs Python 3.10 or newer, and false is none that runs here" in done.stderr
    assert "Name another: make PYTHON=" in done.stderr
    assert not (tmp_path / "venv").exists()
