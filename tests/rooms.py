"""The rooms of the package by the graph of imports, and the tests that a change may break."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

import ngbkit

ROOT = Path(ngbkit.__file__).parent
FILES = {path.relative_to(ROOT).as_posix(): path for path in sorted(ROOT.rglob("*.py"))}
MODULES = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in FILES}
SELECTORS = ("tests/durations.json", "tests/durations.py", "tests/rooms.py")
ADD_ONS = ("why", "predict", "panels", "fleet", "publish")
ROOMS = {path.name for path in ROOT.iterdir() if (path / "__init__.py").is_file()}


def unit(name: str) -> str:
    """The entry of `ORDER` that a file or a module belongs to."""
    return name.replace("/", ".").removesuffix(".py").split(".")[0]


def imports(nodes: Sequence[ast.AST], inside_functions: bool) -> Iterator[str]:
    """The modules that a piece of code imports when it runs, by full name."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from imports(node.orelse, inside_functions)
        elif inside_functions or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from imports(list(ast.iter_child_nodes(node)), inside_functions)


@cache
def parse(name: str) -> ast.Module:
    return ast.parse(FILES[name].read_text(encoding="utf-8"))


@cache
def imports_of(name: str, inside_functions: bool) -> list[str]:
    return list(imports(parse(name).body, inside_functions))


def find_file(module: str) -> str:
    """The file that an imported name belongs to, if it is one of the package's."""
    for path in (module, module.rpartition(".")[0]):
        for file in (f"{path.replace('.', '/')}.py", f"{path.replace('.', '/')}/__init__.py"):
            if file in FILES:
                return file
    return ""


def find_imported(name: str) -> set[str]:
    """The files of the package that a file names in an import of any kind."""
    nodes = list(ast.walk(parse(name)))
    modules = [
        f"{node.module}.{alias.name}" for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    modules += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return {find_file(module.removeprefix("ngbkit.")) for module in modules if module.startswith("ngbkit.")}


@cache
def find_used(room: str) -> frozenset[str]:
    """Find the rooms that a room imports, and those that they import, itself included."""
    modules = {module for name in FILES if unit(name) == room for module in imports_of(name, True)}
    imported = {unit(find_file(module.removeprefix("ngbkit."))) for module in modules if module.startswith("ngbkit.")}
    return frozenset({room}.union(*(find_used(other) for other in imported - {room, "", "__init__"})))


def is_affected(test_file: str, changed: Iterable[str]) -> bool:
    """Return whether changed files may break the tests of a file.

    Tests in the folder of a room need that room, what it imports, and their own folder; other tests need all. All tests
    need what is no code of a room, such as their helpers, except for what only selects tests; notebooks and pages are
    needed by the rooms that read them.
    """
    folder = test_file.split("/")[1]
    # Entry points find the commands of add-ons, which magics and published notebooks run.
    used = {*find_used(folder), "__init__", *(ADD_ONS if folder in ("notebook", "panels", "publish") else ())}
    for path in changed:
        top, _, rest = path.partition("/")
        if top == "tests" and ("/" in rest or rest.startswith("test_")):
            is_needed = rest.split("/")[0] == folder
        elif top == "ngbkit":
            is_needed = folder not in ROOMS or unit(rest) in used
        elif top == "notebooks" or path.endswith(".md"):
            is_needed = folder not in ROOMS - {"notebook", "publish"}
        else:
            is_needed = top not in ("binder", ".ci", ".github") and path not in SELECTORS
        if is_needed:
            return True
    return False


def list_changed(commit: str) -> list[str] | None:
    """List the files that differ from a commit, new ones included; None if git does not know it."""
    lines = []
    for words in (["diff", "--name-only", commit], ["ls-files", "--others", "--exclude-standard"]):
        answer = subprocess.run(["git", *words], cwd=ROOT.parent, capture_output=True, text=True)
        if answer.returncode:
            return None
        lines += answer.stdout.splitlines()
    return lines
