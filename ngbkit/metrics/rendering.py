"""Renders frames as text for a terminal, and as HTML for a page."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any

from ngbkit.metrics.estimate import UNSETTLED, Estimate, Uncertain
from ngbkit.sweep.records import STATUSES
from ngbkit.user_text import fit_output

if TYPE_CHECKING:
    import pandas as pd

_GREY = "rgba(128, 128, 128, 0.4)"  # visible on white and on black


def to_text(frame: pd.DataFrame, width: int | None = None) -> str:
    """Render a frame for a terminal: without escape codes if the output is none, and with the signs that it has.

    Parameters
    ----------
    frame
        The result of `compact` or `build_trial_table`, or any other frame.
    width
        Characters per line. Default: the width of the terminal; without one, the width of the table.
    """
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    title, notes = frame.attrs.get("title"), frame.attrs.get("notes", [])
    table = Table(title=Text(title) if title else None, title_justify="left", title_style="bold")
    terminal = sys.stdout.isatty()
    header, rows = _format_cells(frame)
    for name, numeric in header:
        table.add_column(Text(name), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style="red" if cell in STATUSES and cell != "ok" else "") for cell in row))
    console = Console(file=StringIO(), force_terminal=terminal, force_jupyter=False, width=width)
    if width is None and not terminal:
        needed = Measurement.get(console, console.options.update(max_width=100_000), table).maximum
        console.width = max([needed, *map(len, notes)])
    with console.capture() as captured:
        console.print(table)
        for note in notes:
            console.print(Text(note))
    return fit_output("\n".join(line.rstrip() for line in captured.get().splitlines()))


def to_html(frame: pd.DataFrame) -> str:
    """Render a frame as one HTML element without scripts or requests, readable on light and dark pages."""
    header, rows = _format_cells(frame)
    line = f"padding: 0.25em 0.8em; border-bottom: 1px solid {_GREY};"
    styles = [f"text-align: {'right' if numeric else 'left'}; {line}" for _, numeric in header]
    head = "".join(f'<th style="{style}">{escape(name)}</th>' for (name, _), style in zip(header, styles, strict=True))
    body = "".join(
        "<tr>" + "".join(_render_cell(cell, style) for cell, style in zip(row, styles, strict=True)) + "</tr>"
        for row in rows
    )
    title = frame.attrs.get("title")
    caption = f'<caption style="text-align: left; font-weight: bold;">{escape(title)}</caption>' if title else ""
    notes = "".join(
        f'<tr><td colspan="{len(header)}" style="text-align: left; {line}">{escape(note)}</td></tr>'
        for note in frame.attrs.get("notes", [])
    )
    foot = f"<tfoot>{notes}</tfoot>" if notes else ""
    return (
        '<table style="border-collapse: collapse; margin-bottom: 1em; '
        'font-variant-numeric: tabular-nums; color: inherit;">'
        f"{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody>{foot}</table>"
    )


def format_number(value: float) -> str:
    """Format a number with four significant digits, and NaN as ``–``."""
    if math.isnan(value):
        return "–"
    if value == 0 or math.isinf(value):
        return f"{value:g}"
    if not 1e-3 <= abs(value) < 1e7:
        return f"{value:.3e}"
    digits = 3 - math.floor(math.log10(abs(float(f"{value:.3e}"))))
    return f"{round(value, digits):,.{max(digits, 0)}f}"


def _format_cells(frame: pd.DataFrame) -> tuple[list[tuple[str, bool]], Iterator[list[str]]]:
    """Each column's name and whether it is numeric, and the rows as texts; a label that repeats is omitted."""
    labels = [name for name in frame.index.names if name is not None]
    flat = frame.reset_index() if labels else frame
    columns = [flat[name].tolist() for name in flat.columns]
    header = [(str(name), any(map(_is_number, column))) for name, column in zip(flat.columns, columns, strict=True)]
    return header, _omit_repeated(zip(*map(_format_column, columns), strict=True), max(len(labels) - 1, 0))


def _format_column(values: list[Any]) -> list[str]:
    """The texts of a column: its numbers are all integers, or all have decimals; an estimate knows its own."""
    numbers = [value for value in values if _is_number(value) and not isinstance(value, Estimate)]
    integers = all(value == int(value) for value in numbers if math.isfinite(value))
    write = _format_integer if integers else format_number
    return [
        f"{write(value)}{_mark(value)}" if _is_number(value) and not isinstance(value, Estimate) else str(value)
        for value in values
    ]


def _mark(value: float) -> str:
    """The mark behind a number that is no estimate."""
    return UNSETTLED if isinstance(value, Uncertain) and not math.isnan(value) else ""


def _format_integer(value: float) -> str:
    return f"{value:.0f}" if math.isfinite(value) else format_number(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _omit_repeated(rows: Iterator[tuple[str, ...]], labels: int) -> Iterator[list[str]]:
    previous: tuple[str, ...] = ()
    for row in rows:
        same = next((i for i in range(labels) if row[: i + 1] != previous[: i + 1]), labels)
        yield [*[""] * same, *row[same:]]
        previous = row


def _render_cell(cell: str, style: str) -> str:
    failed = cell in STATUSES and cell != "ok"
    return f'<td style="{style}{" color: #d1495b;" if failed else ""}">{escape(cell)}</td>'
