"""Rows rendered as text for a terminal, as Markdown and as HTML: as a table, or as sheets with a heading each."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ngbkit.user_text import fit_output

Row = dict[str, Any]
# Of an output that is no terminal.
_WIDTH = 120
_GAP = "  "
_INDENT = "  "
# A column shrinks down to its longest word, if that is at most this long: the first limit under which all fit.
_LEAST = (60, 40, 20)
_CODE = re.compile(r"`([^`]+)`")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# What Markdown, or HTML within it, would interpret.
_MARKUP = re.compile(r"[\\`*\[\]<>|~]")
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

    @classmethod
    def of_rows(cls, rows: Iterable[Row]) -> Texts:
        """Format rows, without columns that are empty in all of them."""
        texts = [{name: format_cell(value) for name, value in row.items()} for row in rows]
        header = list(dict.fromkeys(name for row in texts for name, text in row.items() if text))
        return cls(header=header, cells=[[row.get(name, "") for name in header] for row in texts])

    def to_text(self, width: int | None = None) -> str:
        """Render aligned columns, in lines of at most `width` characters: see `to_text`."""
        room = _find_width(width)
        columns = list(zip(self.header, *self.cells, strict=True))
        widths = _fit(columns, room - len(_GAP) * (len(self.header) - 1))
        lines = [line for row in (self.header, *self.cells) for line in _fold_row(row, widths, self.numeric)]
        sentences = [line for note in self.notes for line in _fold(note, room)]
        return fit_output("\n".join([*filter(None, [self.title]), *lines, *sentences]))

    def to_html(self) -> str:
        """Render a table and its notes without script or request, readable on light and dark pages."""
        caption = f'<caption style="text-align: left; font-weight: bold;">{escape(self.title)}</caption>'
        head = "".join(
            f'<th style="{self._style(index)}">{escape(name)}</th>' for index, name in enumerate(self.header)
        )
        body = "".join(f"<tr>{''.join(map(self._render_cell, range(len(row)), row))}</tr>" for row in self.cells)
        style = f"{_TABLE} {_ONE_LINE}" if self._find_width() <= _PAGE else _TABLE
        table = (
            f'<table style="{style}">{caption if self.title else ""}<thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table>"
        )
        # A long note in a row of the table would stretch its columns.
        notes = "<br>".join(map(escape, self.notes))
        return f'{table}<p style="{_NOTES}">{notes}</p>' if notes else table

    def _find_width(self) -> int:
        """Find the width of the table with one line a row, in letters."""
        columns = zip(self.header, *self.cells, strict=True)
        return sum(max(map(len, column)) + _PADDING for column in columns)

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


def to_text(rows: Iterable[Row], empty: str, width: int | None = None) -> str:
    """Render rows as aligned columns, without empty columns; the sentence `empty` if there is no row.

    A line has at most `width` characters, by default those of the terminal, or 120; longer texts are folded.
    """
    texts = Texts.of_rows(rows)
    return texts.to_text(width) if texts.cells else empty


def to_html(rows: Iterable[Row], empty: str) -> str:
    """Render rows as one table without script or request; the sentence `empty` if there is no row."""
    texts = Texts.of_rows(rows)
    return texts.to_html() if texts.cells else f"<p>{escape(empty)}</p>"


def to_markdown(rows: Iterable[Row], empty: str) -> str:
    """Render rows as a table of Markdown; the sentence `empty` if there is no row."""
    texts = Texts.of_rows(rows)
    if not texts.cells:
        return empty
    table = (texts.header, *texts.cells)
    lines = ([_MARKUP.sub(r"\\\g<0>", cell.replace("\n", " ")) for cell in row] for row in table)
    first, *others = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([first, f"|{' --- |' * len(texts.header)}", *others])


def to_sheets(rows: Iterable[Row], empty: str, width: int | None = None) -> str:
    """Render rows one below the other: the first value of each is its heading, every other one a line.

    As `to_text`, but a value of several lines is left as it is.
    """
    sheets = [_to_sheet(row, _find_width(width)) for row in rows]
    return "\n\n".join(sheets) or empty


def to_html_sheets(rows: Iterable[Row], empty: str) -> str:
    """Render the same as one table of two columns, without script or request."""
    body = "".join(_to_html_sheet(row) for row in rows)
    return f'<table style="{_TABLE}"><tbody>{body}</tbody></table>' if body else f"<p>{escape(empty)}</p>"


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


def _find_width(width: int | None) -> int:
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
    folded = [_fold(text, width) for text, width in zip(row, widths, strict=True)]
    for number in range(max(map(len, folded))):
        cells = (lines[number] if number < len(lines) else "" for lines in folded)
        aligned = (
            text.rjust(width) if index in numeric else text.ljust(width)
            for index, (text, width) in enumerate(zip(cells, widths, strict=True))
        )
        yield _GAP.join(aligned).rstrip()


def _fold(text: str, width: int) -> list[str]:
    return [
        piece
        for line in text.split("\n")
        for piece in textwrap.wrap(line, max(width, 1), break_on_hyphens=False) or [""]
    ]


def _split(row: Row) -> tuple[str, dict[str, str]]:
    """Split a row into the heading of a sheet and the texts below it."""
    heading, *rest = ((name, format_cell(value)) for name, value in row.items())
    return heading[1], {name: text for name, text in rest if text}


def _to_sheet(row: Row, width: int) -> str:
    heading, rest = _split(row)
    margin = len(_INDENT) + max(map(len, rest), default=0) + len(_GAP)
    lines = _fold(heading, width)
    for name, text in rest.items():
        # Several lines are a program's own, whose columns mean something.
        pieces = text.split("\n") if "\n" in text else _fold(text, max(width - margin, _LEAST[-1]))
        names = [f"{_INDENT}{name}", *[""] * (len(pieces) - 1)]
        lines += [f"{name.ljust(margin)}{piece}".rstrip() for name, piece in zip(names, pieces, strict=True)]
    return "\n".join(lines)


def _to_html_sheet(row: Row) -> str:
    heading, rest = _split(row)
    body = f'<tr><th colspan="2" style="{_LINE}">{escape(heading)}</th></tr>'
    for name, text in rest.items():
        content = f'<pre style="{_PRINTED}">{escape(text)}</pre>' if "\n" in text else escape(text)
        body += f'<tr><td style="{_LINE} white-space: nowrap;">{escape(name)}</td>'
        body += f'<td style="{_LINE}">{content}</td></tr>'
    return body


def quote_code(text: str) -> str:
    """Format a sentence as HTML, with what it quotes in backticks as code that no line break splits."""
    return _CODE.sub(r'<code style="white-space: nowrap">\1</code>', escape(text))
