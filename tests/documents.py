"""The code blocks of a Markdown document, and a reader that executes them in order."""

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
BATCH_PROGRAMS = ("ipcluster", "ipcontroller", "bsub", "condor_submit")
"""What recipes of batch systems run: `tests/fleet/test_batch_recipe.py` runs it with fake ones."""

_PROGRAMS = ("ngbkit", "make", "pip", "eval", *BATCH_PROGRAMS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A code block."""

    document: str
    line: int  # its first line in the document
    text: str

    @property
    def kind(self) -> Kind:
        """The language of the block."""
        first = self.text.split(maxsplit=1)[0]
        if first.startswith("["):
            return "toml"
        if first in _PROGRAMS:
            return "shell"
        return "cell" if first.startswith("%") else "python"

    def split_commands(self) -> Iterator[list[str]]:
        """Split the block into command lines, as lists of words."""
        for line in self.text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words:
                yield words


def parse_blocks(path: Path) -> list[Block]:
    """Parse the blocks of a document in order, indented ones and fenced ones."""
    text = path.read_text()
    # Braces mark a directive of Sphinx, not code.
    fenced = [(match.start(), match[2]) for match in _FENCE.finditer(text) if not match[1].startswith("{")]
    # Indented lines within a fence are no block of their own.
    bare = _FENCE.sub(lambda match: re.sub(r"[^\n]", "x", match[0]), text)
    indented = [(match.start(), dedent(match[1])) for match in _INDENTED.finditer(bare)]
    return [
        Block(document=path.name, line=text.count("\n", 0, start) + 1, text=content.strip("\n"))
        for start, content in sorted([*fenced, *indented])
    ]


@dataclass(kw_only=True)
class Reader:
    """Executes blocks in order, as a reader of the document would.

    Its functions run a cell of a notebook, the words of a command line, and a devices file.
    """

    cell: Callable[[str], None]
    command: Callable[[list[str]], None]
    table: Callable[[str], None]

    def execute(self, blocks: list[Block]) -> None:
        """Execute blocks by their kind; a failure names the document and the line."""
        for block in blocks:
            try:
                if block.kind == "toml":
                    self.table(block.text)
                elif block.kind == "shell":
                    for words in block.split_commands():
                        self.command(words)
                else:
                    self.cell(block.text)
            except BaseException as error:
                error.args = (f"{block.document}, line {block.line}: {error}",)
                raise
