"""The rows of the answers of commands."""

from __future__ import annotations

from ngbkit.commands.answer import Answer


def list_rows(answer: Answer) -> list[dict[str, str]]:
    """List the rows of the only table of an answer, as texts by column."""
    (frame,) = answer.report.frames
    return [dict(zip(frame.header, row, strict=True)) for row in frame.cells]
