"""The answer of a command: plain JSON for programs, and rows for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ngbkit.commands.listing import layout
from ngbkit.commands.listing.layout import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a command: all of it as plain JSON, and the rows that people read, or a sentence without any."""

    json: Any
    rows: Sequence[Row]
    empty: str
    # Sheets, one below the other, instead of one table: for rows of long texts.
    sheets: bool = False
    # Sentences below the rows.
    notes: Sequence[str] = ()

    def to_text(self) -> str:
        """The rows for a terminal."""
        render = layout.to_sheets if self.sheets else layout.to_text
        return "\n\n".join(filter(None, [render(self.rows, self.empty), "\n".join(self.notes)]))

    def to_markdown(self) -> str:
        """The rows as a table of Markdown."""
        return layout.to_markdown(self.rows, self.empty)
