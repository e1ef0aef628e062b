"""The report of a command or of a result: sentences first, then tables and notes, and the rest behind `more`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ngbkit import registry
from ngbkit.errors import strip_controls, translate_commands
from ngbkit.tabular import Texts, find_width, fold, quote_code
from ngbkit.user_text import fit_output


class Reported:
    """A result that displays its report, with the commands in it as magics."""

    __slots__ = ()

    def to_report(self) -> Report:
        """Build the report."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.to_report().translate().to_text()

    def _repr_html_(self) -> str:
        return self.to_report().translate().to_html()


class Charted(Reported):
    """A result with a figure too, which the entry point of that name draws."""

    __slots__ = ()
    figure: ClassVar[str]

    def plot(self, *arguments: Any, **options: Any) -> Any:
        """Draw the figure."""
        return registry.load(registry.FIGURES, self.figure)(self, *arguments, **options)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Report(Reported):
    """Sentences, tables and notes, each of them displayed once."""

    sentences: Sequence[str] = ()  # the answer, and what is not sure of it
    next: str = ""  # the next step, which follows the sentences
    frames: Sequence[Texts] = ()  # the tables
    notes: Sequence[str] = ()  # sentences below the tables
    more: Report | None = None  # the rest, which a page folds
    hint: str = ""  # the sentence with the command that prints the rest, which replaces it in a terminal

    @property
    def lines(self) -> list[str]:
        """The sentences and the next step."""
        return [*self.sentences, *filter(None, [self.next])]

    def to_report(self) -> Report:
        """Return the report itself."""
        return self

    def to_text(self) -> str:
        """Render the report for a terminal, with the signs that its encoding has."""
        return strip_controls(fit_output(_drop_repeated(self, set())._to_text()))

    def _to_text(self) -> str:
        room = find_width(None, is_limited=False)
        above, below = (
            "\n".join(line for sentence in lines if sentence for line in fold(sentence, room))
            for lines in (self.lines, [*self.notes, self.hint])
        )
        rest = self.more._to_text() if self.more and not self.hint else ""
        return "\n\n".join(filter(None, [above, *(frame.to_text() for frame in self.frames), below, rest]))

    def to_html(self) -> str:
        """Render the report for a page, without script or request."""
        return _drop_repeated(self, set())._to_html()

    def _to_html(self) -> str:
        above, below = map(_join_lines, (self.lines, self.notes))
        parts = [f"<p>{above}</p>" if above else "", *(frame.to_html() for frame in self.frames)]
        parts += [f"<p><small>{below}</small></p>"] if below else []
        rest = self.more._to_html() if self.more else ""
        return "".join([*parts, f"<details><summary>more</summary>{rest}</details>" if rest else ""])

    def translate(self) -> Report:
        """Write the commands that the report proposes as magics."""
        return Report(
            sentences=list(map(_translate, self.sentences)),
            next=_translate(self.next),
            frames=[frame.map(_translate) for frame in self.frames],
            notes=list(map(_translate, self.notes)),
            more=self.more and self.more.translate(),
            hint=_translate(self.hint),
        )


def _translate(text: str) -> str:
    return translate_commands(text, "magic") if "`" in text else text


def _join_lines(lines: Iterable[str]) -> str:
    return "<br>".join(quote_code(line).replace("\n", "<br>") for line in lines if line)


def _drop_repeated(report: Report, displayed: set[str]) -> Report:
    """Drop the sentences that were displayed before."""

    def select(lines: Sequence[str]) -> list[str]:
        others = [line for line in dict.fromkeys(lines) if line not in displayed]
        displayed.update(others)
        return others

    return replace(
        report,
        sentences=select(report.sentences),
        frames=[replace(frame, notes=select(frame.notes)) for frame in report.frames],
        notes=select(report.notes),
        more=report.more and _drop_repeated(report.more, displayed),
    )
