"""Variables are nouns of the field, docstrings are sentences, and a class has a name of its own.

No variable is a word that only points at where its value came from. No docstring opens with a question word, and
one of a test begins with its subject.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
POINTERS = frozenset(
    {
        *("about", "alike", "apart", "asked", "at", "came", "drawn", "found", "given", "going", "gone", "held", "here"),
        *("how", "kept", "known", "likely", "looked", "made", "mine", "named", "one", "own", "said", "seen", "several"),
        *("shown", "taken", "there", "told", "tried", "wanted", "what", "whole", "whose", "written"),
    }
)
# A docstring with such an opener continues the test's name, or delays its subject.
OPENERS = frozenset(
    {
        *("Also", "Although", "And", "As", "Because", "Before", "Beside", "But", "By", "Even", "Except", "Excluding"),
        *("How", "However", "Including", "Like", "Nor", "Not", "Of", "Once", "Only", "Or", "Otherwise", "So", "Such"),
        *("Then", "Too", "Twice", "Unless", "Unlike", "What", "Whatever", "When", "Where", "Whether", "Which"),
        *("Whichever", "Who", "Whoever", "Whose", "Why", "With", "Within", "Without"),
    }
)
# Parameters and fields of the public API, which keeps its names.
PUBLIC = frozenset(
    {
        ("ngbkit/predict/optimizer/optimise.py", "tried"),
    }
)


# A function says what it does, "Return whether ..."; all else is a noun.
QUESTION = re.compile(r"\s*(?:How|What|Where|Whether|Which|Who|Whose|Why)\b")


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


def docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    """The docstrings of modules, classes, functions and attributes: every text that is a statement of its own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


def questions(tree: ast.AST) -> list[str]:
    """The lines whose docstring opens with a question word, each with the docstring's first line."""
    return [
        f"{text.lineno}: {text.value.strip().splitlines()[0]}"
        for text in docstrings(tree)
        if QUESTION.match(str(text.value))
    ]


FILES = sorted(
    path.relative_to(ROOT).as_posix() for folder in ("ngbkit", "tests") for path in (ROOT / folder).rglob("*.py")
)


def list_fragments(file: str) -> list[str]:
    """The tests of a file whose docstrings open with one of the openers."""
    return [
        f"{file}: {node.name}"
        for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        if (words := (ast.get_docstring(node) or "").split()) and words[0].strip(",:;.") in OPENERS
    ]


@pytest.mark.guard
def test_variables_are_nouns() -> None:
    """No file binds a pointer, except for the listed exceptions, which are all needed."""
    assert set(PUBLIC) == {(file, name) for file in FILES for name in pointers(file)}


@pytest.mark.guard
def test_docstrings_open_with_no_question_word() -> None:
    """Every docstring of the package and of the benchmarks names a thing or says what a function does."""
    files = [file for file in FILES if file.startswith(("ngbkit/", "tests/bench/"))]
    trees = {file: ast.parse((ROOT / file).read_text(encoding="utf-8")) for file in files}

    assert {} == {file: lines for file, tree in trees.items() if (lines := questions(tree))}


@pytest.mark.parametrize(
    "program",
    [
        '"""What it is."""',
        'class Device:\n    """Where it is."""',
        'class Device:\n    name: str\n    """How it is called."""',
        'class Device:\n    @property\n    def ended(self):\n        """Whether it has ended."""',
        'async def load():\n    """\n    Why it loads.\n    """',
        'LIMIT = 1\n"""Which limit."""',
    ],
)
def test_a_question_word_is_found_wherever_a_docstring_is(program: str) -> None:
    """Modules, classes, functions, properties and attributes have docstrings."""
    assert 1 == len(questions(ast.parse(program)))
    assert [] == questions(ast.parse(re.sub(QUESTION.pattern, "The thing", program)))


def test_class_names_are_unique() -> None:
    """No two classes of the package have one name, so that a search for a name finds one class."""
    files = defaultdict(list)
    for file in FILES:
        if file.startswith("ngbkit/"):
            for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    files[node.name].append(file)
    assert {} == {name: places for name, places in files.items() if len(places) > 1}


def test_names_of_test_modules_are_unique() -> None:
    """Pytest imports each by its name alone, whatever its folder."""
    counts = Counter(
        path.name for path in (ROOT / "tests").rglob("*.py") if path.name not in {"__init__.py", "conftest.py"}
    )

    assert not [name for name, count in counts.items() if count > 1]


def test_docstrings_of_tests_are_sentences() -> None:
    """No docstring of a test opens with a word that continues the test's name or delays the subject."""
    assert [] == [test for file in FILES if file.startswith("tests/") for test in list_fragments(file)]


if __name__ == "__main__":
    for file in FILES:
        if file.startswith(tuple(sys.argv[1:]) or ("",)) and (names := pointers(file)):
            print(f"{file}: {', '.join(sorted(names))}")
