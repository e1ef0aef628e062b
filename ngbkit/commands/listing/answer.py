"""What a verb answers: plain JSON for programs, and rows for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ngbkit.commands.listing import layout
from ngbkit.commands.listing.layout import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a verb answers.

    Parameters
    ----------
    json
        All of it, as plain JSON.
    rows
        What people are shown of it.
    empty
        The sentence that stands where there is no row.
    sheets
        Whether the rows have so much to say that they stand one below the other, and not in columns.
    """

    json: Any
    rows: Sequence[Row]
    empty: str
    sheets: bool = False

    def to_text(self) -> str:
        """For a terminal."""
        write = layout.to_sheets if self.sheets else layout.to_text
        return write(self.rows, self.empty)
