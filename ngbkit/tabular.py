"""The texts of a table, laid out for a terminal and as HTML: in columns, or as sheets."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Literal

Row = dict[str, Any]
# Of an output that is no terminal.
_WIDTH, _UNLIMITED = 120, 100_000
_GAP = "  "
_INDENT = "  "
# A column shrinks down to its longest word, if that is at most this long: the first limit under which all fit.
_LEAST = (60, 40, 20)
_CODE = re.compile(r"`([^`]+)`")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_GREY = "rgba(128, 128, 128, 0.4)"  # visible on white and on black
_LINE = f"padding: 0.25em 0.8em; text-align: left; vertical-align: top; border-bottom: 1px solid {_GREY};"
_TABLE = "border-collapse: collapse; margin-bottom: 1em; font-variant-numeric: tabular-nums; color: inherit;"
_PRINTED = "margin: 0; white-space: pre-wrap; font-size: 90%; color: inherit; background: transparent;"
_NOTES = "margin: -0.7em 0 1em; font-size: 90%;"
_ONE_LINE = "white-space: nowrap;"
_RED = "color: #d1495b;"
# The width of a notebook beside an open side bar, and of the padding of a cell, in letters; and the longest short text.
_PAGE, _PADDING, _SHORT = 140, 3, 12


class Hinted(str):
    """A text for which a page displays another one, `hint`, under the pointer."""

    __slots__ = ("hint",)
    hint: str

    def __new__(cls, text: str, hint: str) -> Hinted:
        hinted = super().__new__(cls, text)
        hinted.hint = hint
        return hinted


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """The texts of a table: its columns, some of them numbers, and its cells by row."""

    header: Sequence[str]
    cells: Sequence[Sequence[str]]
    # Columns that are aligned at their right end.
    numeric: frozenset[int] = frozenset()
    # Cells that stand out on a page, such as the status of a failed trial.
    marked: Container[str] = ()
    title: str = ""
    # Sentences below the table.
    notes: Sequence[str] = ()
    # The sentence that replaces a table without rows.
    empty: str = ""
    # Columns; or sheets, for rows of long texts: the first cell is a heading, every other one a line below it.
    form: Literal["table", "sheets"] = "table"
    # Whether an output that is no terminal has lines of a limited length too.
    is_limited: bool = True

    @classmethod
    def of_rows(cls, rows: Iterable[Row], empty: str = "", form: Literal["table", "sheets"] = "table") -> Texts:
        """Format rows, without columns that are empty in all of them."""
        texts = [{name: format_cell(value) for name, value in row.items()} for row in rows]
        header = list(dict.fromkeys(name for row in texts for name, text in row.items() if text))
        return cls(
            header=header, cells=[[row.get(name, "") for name in header] for row in texts], empty=empty, form=form
        )

    def map(self, change: Callable[[str], str]) -> Texts:
        """Change each cell and each sentence."""
        return replace(
            self,
            cells=[[change(cell) if "`" in cell else cell for cell in row] for row in self.cells],
            notes=list(map(change, self.notes)),
            empty=change(self.empty),
        )

    def to_text(self, width: int | None = None) -> str:
        """Lay out aligned columns, or sheets, in lines of at most `width` characters; longer texts are folded.

        The default is the width of the terminal; of an output that is none, 120, or no limit.
        """
        room = find_width(width, self.is_limited)
        if not self.cells and self.empty:
            return "\n".join([self.empty, *self.notes])
        if self.form == "sheets":
            return "\n\n".join(self._render_sheet(row, room) for row in self.cells)
        columns = list(zip(self.header, *self.cells, strict=True))
        widths = _fit(columns, room - len(_GAP) * (len(self.header) - 1))
        lines = [line for row in (self.header, *self.cells) for line in _fold_row(row, widths, self.numeric)]
        sentences = [line for note in self.notes for line in fold(note, room)]
        return "\n".join([*filter(None, [self.title]), *lines, *sentences])

    def to_html(self) -> str:
        """Render a table and its notes without script or request, readable on light and dark pages."""
        if not self.cells and self.empty:
            return f"<p>{'<br>'.join(map(quote_code, [self.empty, *self.notes]))}</p>"
        if self.form == "sheets":
            return f'<table style="{_TABLE}"><tbody>{"".join(map(self._render_html_sheet, self.cells))}</tbody></table>'
        caption = f'<caption style="text-align: left; font-weight: bold;">{escape(self.title)}</caption>'
        head = "".join(
            f'<th style="{self._style(index)}">{escape(name)}</th>' for index, name in enumerate(self.header)
        )
        body = "".join(f"<tr>{''.join(map(self._render_cell, range(len(row)), row))}</tr>" for row in self.cells)
        columns = zip(self.header, *self.cells, strict=True)
        width = sum(max(map(len, column)) + _PADDING for column in columns)  # with one line a row, in letters
        style = f"{_TABLE} {_ONE_LINE}" if width <= _PAGE else _TABLE
        table = (
            f'<table style="{style}">{caption if self.title else ""}<thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table>"
        )
        # A long note in a row of the table would stretch its columns.
        notes = "<br>".join(map(quote_code, self.notes))
        return f'{table}<p style="{_NOTES}">{notes}</p>' if notes else table

    def _render_sheet(self, row: Sequence[str], width: int) -> str:
        rest = {name: text for name, text in zip(self.header[1:], row[1:], strict=True) if text}
        margin = len(_INDENT) + max(map(len, rest), default=0) + len(_GAP)
        lines = fold(row[0], width)
        for name, text in rest.items():
            # Several lines are a program's own, whose columns mean something.
            pieces = text.split("\n") if "\n" in text else fold(text, max(width - margin, _LEAST[-1]))
            names = [f"{_INDENT}{name}", *[""] * (len(pieces) - 1)]
            lines += [f"{name.ljust(margin)}{piece}".rstrip() for name, piece in zip(names, pieces, strict=True)]
        return "\n".join(lines)

    def _render_html_sheet(self, row: Sequence[str]) -> str:
        body = f'<tr><th colspan="2" style="{_LINE}">{escape(row[0])}</th></tr>'
        for name, text in zip(self.header[1:], row[1:], strict=True):
            content = f'<pre style="{_PRINTED}">{escape(text)}</pre>' if "\n" in text else escape(text)
            if text:
                body += f'<tr><td style="{_LINE} {_ONE_LINE}">{escape(name)}</td>'
                body += f'<td style="{_LINE}">{content}</td></tr>'
        return body

    def _style(self, index: int) -> str:
        return _LINE.replace("left", "right") if index in self.numeric else _LINE

    def _render_cell(self, index: int, cell: str) -> str:
        """Render a name, the first cell, and a short text in one line; a list may be folded after each comma."""
        style = self._style(index) + (f" {_RED}" if cell in self.marked else "")
        hint = f' title="{escape(cell.hint)}"' if isinstance(cell, Hinted) else ""
        if index and index not in self.numeric and len(cell) > _SHORT:
            return f'<td style="{style}"{hint}>{escape(cell).replace(",", ",<wbr>")}</td>'
        in_one_line = "" if index in self.numeric else f" {_ONE_LINE}"
        return f'<td style="{style}{in_one_line}"{hint}>{escape(cell)}</td>'


def format_cell(value: Any) -> str:
    """Format a value as people read it, without control sequences of a terminal."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        text = ", ".join(f"{name} {number}" for name, number in value.items())
    else:
        text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    clean = "".join(sign if sign.isprintable() or sign == "\n" else " " for sign in _ANSI.sub("", text).expandtabs(4))
    return Hinted(clean, value.hint) if isinstance(value, Hinted) else clean


def find_width(width: int | None, is_limited: bool = True) -> int:
    """Find the width of the terminal, or of an output that is none, unless a width is given."""
    if width is None and not is_limited and not sys.stdout.isatty():
        return _UNLIMITED
    return shutil.get_terminal_size((_WIDTH, 0)).columns if width is None else width


def _fit(columns: Sequence[Sequence[str]], room: int) -> list[int]:
    """Fit the width of each column: as wide as its texts, the widest shrinking first if there is no room."""
    needed = [max(len(line) for text in column for line in [*text.split("\n"), ""]) for column in columns]
    words = [max(len(word) for text in column for word in [*text.split(), ""]) for column in columns]
    # A word is split only as a last resort: nobody could copy it.
    for longest in _LEAST:
        least = [words[0], *(min(word, longest) for word in words[1:])]
        if sum(least) <= room:
            break
    most = max(needed)
    while most > 1 and sum(_cap(needed, least, most)) > room:
        most -= 1
    return _cap(needed, least, most)


def _cap(needed: Sequence[int], least: Sequence[int], most: int) -> list[int]:
    return [max(low, min(size, most)) for size, low in zip(needed, least, strict=True)]


def _fold_row(row: Sequence[str], widths: Sequence[int], numeric: Container[int]) -> Iterator[str]:
    """Fold the texts of one row into lines."""
    folded = [fold(text, width) for text, width in zip(row, widths, strict=True)]
    for number in range(max(map(len, folded))):
        cells = (lines[number] if number < len(lines) else "" for lines in folded)
        aligned = (
            text.rjust(width) if index in numeric else text.ljust(width)
            for index, (text, width) in enumerate(zip(cells, widths, strict=True))
        )
        yield _GAP.join(aligned).rstrip()


def fold(text: str, width: int) -> list[str]:
    """Fold a text into lines of at most that width."""
    return [
        piece
        for line in text.split("\n")
        for piece in textwrap.wrap(line, max(width, 1), break_on_hyphens=False) or [""]
    ]


def quote_code(text: str) -> str:
    """Format a sentence as HTML, with what it quotes in backticks as code that no line break splits."""
    return _CODE.sub(r'<code style="white-space: nowrap">\1</code>', escape(text))
