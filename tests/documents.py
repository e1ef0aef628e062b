"""The code blocks of a Markdown document, and a reader who tries each of them in order."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Literal

Kind = Literal["toml", "shell", "cell", "python"]

_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"(?<=\n\n)( {4}.*\n(?:\n* {4}.*\n)*)")
_PROGRAMS = ("ngbkit", "make")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A code block.

    Parameters
    ----------
    document, line
        Where it begins.
    text
        What is in it.
    """

    document: str
    line: int
    text: str

    @property
    def kind(self) -> Kind:
        """What reads it."""
        first = self.text.split(maxsplit=1)[0]
        if first.startswith("["):
            return "toml"
        if first in _PROGRAMS:
            return "shell"
        return "cell" if first.startswith("%") else "python"

    def commands(self) -> Iterator[list[str]]:
        """The command lines of a block for the shell, as words."""
        for line in self.text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words:
                yield words


def blocks(path: Path) -> list[Block]:
    """The blocks of a document in order, indented ones and fenced ones."""
    text = path.read_text()
    # In braces stands what Sphinx does, and no code.
    fenced = [(one.start(), one[2]) for one in _FENCE.finditer(text) if not one[1].startswith("{")]
    # What a fence holds is no indented block.
    bare = _FENCE.sub(lambda one: re.sub(r"[^\n]", "x", one[0]), text)
    indented = [(one.start(), dedent(one[1])) for one in _INDENTED.finditer(bare)]
    return [
        Block(document=path.name, line=text.count("\n", 0, start) + 1, text=content.strip("\n"))
        for start, content in sorted([*fenced, *indented])
    ]


@dataclass(kw_only=True)
class Reader:
    """Tries blocks in order, as one who reads the document would.

    Parameters
    ----------
    cell, command, table
        What runs a cell of a notebook, the words of a command line, a devices file.
    """

    cell: Callable[[str], None]
    command: Callable[[list[str]], None]
    table: Callable[[str], None]

    def try_all(self, several: list[Block]) -> int:
        """Each as what it is, and how many could be done; a failure says where the block stands."""
        done = 0
        for block in several:
            try:
                if block.kind == "toml":
                    self.table(block.text)
                elif block.kind == "shell":
                    for words in block.commands():
                        self.command(words)
                else:
                    self.cell(block.text)
                done += 1
            except BaseException as error:
                error.args = (f"{block.document}, line {block.line}: {error}",)
                raise
        return done
