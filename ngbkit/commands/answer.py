"""The answer of a command: JSON for programs, a report for people, or a value for a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ngbkit.report import Report, Reported
from ngbkit.tabular import Row, Texts

OK, FAILED, INVALID, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 130, 141
"""Exit codes."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Answer(Reported):
    """The answer of a command; a notebook displays its report."""

    json: Any = None  # all of it, for programs
    report: Report = field(default_factory=Report)  # its sentences and tables, for people
    value: Any = None  # what the magic returns in place of the answer, if anything
    binds: bool = False  # bind that value to the variable of ``-o``
    previous: Any = None  # another result, which is displayed before this one
    code: int = OK  # the exit code

    @classmethod
    def of_rows(
        cls,
        rows: Iterable[Row],
        empty: str = "",
        *,
        json: Any = None,
        notes: Sequence[str] = (),
        form: Literal["table", "sheets"] = "table",
        code: int = OK,
    ) -> Answer:
        """Answer with one table; the sentence `empty` replaces one without rows."""
        return cls(json=json, report=Report(frames=[Texts.of_rows(rows, empty, form)], notes=notes), code=code)

    def to_report(self) -> Report:
        """Return the report."""
        return self.report

    def to_text(self) -> str:
        """Render the answer for a terminal."""
        return self.report.to_text()
