"""The answer of a command: JSON for programs, text for a terminal, and a table or a value for a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Literal

from ngbkit import tabular
from ngbkit.errors import strip_controls, translate_commands
from ngbkit.tabular import Row, quote_code

OK, FAILED, INVALID, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 130, 141
"""Exit codes."""

_RENDER: dict[str, Callable[[Iterable[Row], str], str]] = {
    "table": tabular.to_text,
    "sheets": tabular.to_sheets,
    "markdown": tabular.to_markdown,
}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Answer:
    """The answer of a command; a notebook displays it as a table.

    Parameters
    ----------
    json
        All of it, as plain JSON.
    text
        Sentences or tables above the rows.
    rows
        The rows that people read; None for an answer without a table.
    empty
        The sentence that replaces a table without rows.
    form
        One table, sheets one below the other (for rows of long texts), or a table of Markdown.
    notes
        Sentences below the rows.
    value
        What the magic returns in place of the answer, if anything.
    binds
        Bind that value to the variable of ``-o``.
    previous
        Another answer, which is displayed before this one.
    code
        The exit code.
    """

    json: Any = None
    text: str = ""
    rows: Sequence[Row] | None = None
    empty: str = ""
    form: Literal["table", "sheets", "markdown"] = "table"
    notes: Sequence[str] = ()
    value: Any = None
    binds: bool = False
    previous: Answer | None = None
    code: int = OK

    def to_text(self) -> str:
        """Render the answer for a terminal."""
        previous = self.previous.to_text() if self.previous else ""
        table = "" if self.rows is None else _RENDER[self.form](self.rows, self.empty)
        return strip_controls("\n\n".join(filter(None, [previous, self.text, table, "\n".join(self.notes)])))

    def to_html(self) -> str:
        """Render the answer for a page."""
        render = tabular.to_html_sheets if self.form == "sheets" else tabular.to_html
        text = f"<p>{escape(self.text)}</p>" if self.text else ""
        table = "" if self.rows is None else render(self.rows, self.empty)
        notes = "<br>".join(map(quote_code, self.notes))
        return text + table + (f"<p><small>{notes}</small></p>" if notes else "")

    def translate(self) -> Answer:
        """Write the commands that the answer proposes as magics."""
        return replace(
            self,
            text=_translate(self.text),
            rows=self.rows and [{name: _translate(value) for name, value in row.items()} for row in self.rows],
            empty=_translate(self.empty),
            notes=list(map(_translate, self.notes)),
        )

    def _repr_html_(self) -> str:
        return self.translate().to_html()

    def __repr__(self) -> str:
        return self.translate().to_text()


def _translate(value: Any) -> Any:
    return translate_commands(value, "magic") if isinstance(value, str) and "`" in value else value
