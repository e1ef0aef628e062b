"""How runs and lists are drawn in a notebook: a line of progress that turns into the table of results."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from ngbkit.commands import listing
from ngbkit.runs.progress_display import PAUSE_S, describe, remarks
from ngbkit.runs.time_left import duration

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from ngbkit.dataset.storage import Data
    from ngbkit.runs import Run

_RUN = "ngbkit.runs.run.Run"


def register(shell: InteractiveShell) -> None:
    """Have live runs draw themselves wherever one is the value of a cell."""
    formatters: Any = shell.display_formatter
    formatters.ipython_display_formatter.for_type(_RUN, lambda run: follow(run, shell))


def unregister(shell: InteractiveShell) -> None:
    """Have them shown as any other object again."""
    formatters: Any = shell.display_formatter
    formatters.ipython_display_formatter.pop(_RUN, None)


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows of `ngbkit.commands.listing`, as a table.

    Parameters
    ----------
    rows
        One dict a row.
    empty
        The sentence that stands where there is none.
    """

    rows: Sequence[dict[str, Any]]
    empty: str

    def _repr_html_(self) -> str:
        return listing.to_html(self.rows, self.empty)

    def __repr__(self) -> str:
        return listing.to_text(self.rows, self.empty)


@dataclass(frozen=True, slots=True)
class Moment:
    """A run as it is drawn at one moment: a bar and a line while it lasts, its table after that.

    Parameters
    ----------
    run
        The run.
    data
        Its dataset; None while it lasts.
    took_s
        Seconds since it was first drawn.
    """

    run: Run
    data: Data | None
    took_s: float

    def _repr_html_(self) -> str:
        now, line = self.run.progress, escape(self._line())
        if self.data is None:
            return f'<progress value="{now.done}" max="{now.total}" style="vertical-align: middle"></progress> {line}'
        from ngbkit.metrics.tables import compact, to_html

        below = "<br>".join([line, *map(escape, self._below())])
        return f"{to_html(compact(self.data))}<p><small>{below}</small></p>"

    def __repr__(self) -> str:
        if self.data is None:
            return self._line()
        from ngbkit.metrics.tables import compact, to_text

        return "\n".join([to_text(compact(self.data)), self._line(), *self._below()])

    def _below(self) -> list[str]:
        """What disturbed, and where to read why trials gave no result."""
        failed = len(self.run.failures())
        hint = [f"{failed} of its trials gave no result: %ngruns --failures {self.run.id} says why"] if failed else []
        return [*remarks(self.run), *hint]

    def _line(self) -> str:
        line = describe(self.run)
        if self.data is None:
            return line
        return f"{line}, {self.run.state} after {duration(self.took_s)}; run {self.run.id}"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text on how far something is."""

    text: str

    def _repr_html_(self) -> str:
        return escape(self.text)

    def __repr__(self) -> str:
        return self.text


@dataclass(slots=True)
class Drawing:
    """One place in the notebook where a run is drawn, and drawn again.

    A kernel replaces what it drew. A terminal cannot: there the line of progress overwrites itself, and the table
    follows.

    Parameters
    ----------
    shell
        The notebook's.
    with_table
        Whether a run that has ended is drawn as its table; else as the line that it was.
    """

    shell: InteractiveShell
    with_table: bool = True
    _handle: Any = None
    _began: float = field(default_factory=time.monotonic)

    def show(self, run: Run) -> None:
        """Draw the run as it is now."""
        if run.ended and self.with_table:
            self._put(Moment(run, run.dataset(), time.monotonic() - self._began), last=True)
        else:
            self._put(Moment(run, None, 0.0), last=False)

    def write(self, line: str) -> None:
        """Have a line of text in the place of what was drawn."""
        self._put(Line(line), last=False)

    def clear(self) -> None:
        """Leave an empty place, where anything was drawn."""
        if self._handle is not None:
            self._handle.update(Line(""))
        _overwrite("")

    def _put(self, moment: Moment | Line, last: bool) -> None:
        from IPython.display import DisplayHandle

        in_terminal = getattr(self.shell, "kernel", None) is None
        if in_terminal and not last:
            _overwrite(repr(moment))
        elif self._handle is None or in_terminal:
            _overwrite("")
            self._handle = DisplayHandle()  # type: ignore[no-untyped-call]  # IPython's own
            self._handle.display(moment)
        else:
            self._handle.update(moment)


def follow(run: Run, shell: InteractiveShell) -> None:
    """Draw a live run, and again whenever something has happened, at most five times a second, until it has ended."""
    show = _throttled(Drawing(shell).show)
    show(run)
    run.subscribe(show)
    if run.ended:  # perhaps before anyone listened
        show(run)


def when_ended(run: Run, act: Callable[[Run], object]) -> None:
    """Call `act` once, as soon as the run has ended: on the run's own thread, or here if it has ended already."""
    done = False

    def listen(run: Run) -> None:
        nonlocal done
        if run.ended and not done:
            done = True
            act(run)

    run.subscribe(listen)
    listen(run)


def _throttled(show: Callable[[Run], None]) -> Callable[[Run], None]:
    """The same, called at most five times a second, and once when the run has ended."""
    shown, over = 0.0, False

    def listen(run: Run) -> None:
        nonlocal shown, over
        if not over and (run.ended or time.monotonic() - shown >= PAUSE_S):
            shown, over = time.monotonic(), run.ended
            show(run)

    return listen


def _overwrite(line: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[2K{line}")
        sys.stderr.flush()
