"""Variables are nouns of the field: none is a word that only points at where its value came from."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
POINTERS = frozenset(
    {
        *("about", "alike", "apart", "asked", "at", "came", "drawn", "found", "given", "going", "gone", "held", "here"),
        *("how", "kept", "known", "likely", "looked", "made", "mine", "named", "one", "own", "said", "seen", "several"),
        *("shown", "taken", "there", "told", "tried", "wanted", "what", "whole", "whose", "written"),
    }
)
# Parameters and fields of the public API, which keeps its names.
PUBLIC = frozenset(
    {
        ("ngbkit/optimizer/costs.py", "several"),
        ("ngbkit/optimizer/optimise.py", "tried"),
        ("ngbkit/publish/checking.py", "said"),
        ("ngbkit/publish/checking.py", "what"),
    }
)


def bindings(tree: ast.AST) -> Iterator[str]:
    """The names that a module binds as variables and as parameters."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name


def pointers(file: str) -> set[str]:
    """The pointer words that a file binds; a leading underscore hides none."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {name for name in bindings(tree) if name.strip("_") in POINTERS}


FILES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("bench", "ngbkit", "tests")
    for path in (ROOT / folder).rglob("*.py")
)


def test_variables_are_nouns() -> None:
    """No file binds a pointer, except for the listed exceptions, which are all needed."""
    assert set(PUBLIC) == {(file, name) for file in FILES for name in pointers(file)}


if __name__ == "__main__":
    for file in FILES:
        if file.startswith(tuple(sys.argv[1:]) or ("",)) and (names := pointers(file)):
            print(f"{file}: {', '.join(sorted(names))}")
