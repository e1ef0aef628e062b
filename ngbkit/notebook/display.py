"""Displays runs in a notebook: a line of progress that turns into the table of results."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from ngbkit.commands import streams
from ngbkit.commands.shell import MOST_ROWS, choose_figures, point_to_failures
from ngbkit.errors import NgbkitError
from ngbkit.report import Report
from ngbkit.runs.progress_display import PAUSE_S, describe, describe_seconds, list_known, list_warnings
from ngbkit.sweep.records import Record
from ngbkit.user_text import format_duration

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from ngbkit.dataset.storage import Data
    from ngbkit.runs import Run

_RUN = "ngbkit.runs.run.Run"
_REMEDY = "run the cell again, which resumes the run"
# Intervals of more trials would take the time of a core that measures.
_MOST_TRIALS = 200
_TABLE_PAUSE_S = 0.5


def register(shell: InteractiveShell) -> None:
    """Display the progress of a run that is the value of a cell; in a terminal, with the signs that it has."""
    if _is_terminal(shell):
        streams.replace_signs()
    formatters: Any = shell.display_formatter
    formatters.ipython_display_formatter.for_type(_RUN, lambda run: follow(run, shell))


def unregister(shell: InteractiveShell) -> None:
    """Restore the plain display of runs."""
    formatters: Any = shell.display_formatter
    formatters.ipython_display_formatter.pop(_RUN, None)


@dataclass(frozen=True)
class Snapshot:
    """A run at one moment: a bar and a line while it measures, and its table after that."""

    run: Run
    data: Data | None  # None while it measures
    elapsed_s: float  # since it was first displayed
    with_tables: bool = True  # whether its data is displayed as tables, or by the remarks alone
    notices: Sequence[str] = ()  # what was to be known before it
    table: str = ""  # its table so far, as HTML

    def _repr_html_(self) -> str:
        line = escape(self._describe())
        if self.data is None:
            bar = f'<progress value="{self.run.progress.share:.4f}" style="vertical-align: middle"></progress>'
            # A notebook keeps this bar if its kernel ends.
            stale = f"{time.strftime('%H:%M:%S')}. If this bar does not move, its kernel has ended: {_REMEDY}."
            notes = Report(notes=[*self.notices, *list_known(self.run), *list_warnings(self.run), stale])
            return f"{bar} {line}{notes._repr_html_()}{self.table}"
        from ngbkit.figures import statements

        remarks = Report(notes=[self._describe(), *list_known(self.run), *point_to_failures(self.run)])
        html = statements.mark(self._report._repr_html_(), "report", self.data, **self._arguments)
        return f"{html}{remarks._repr_html_()}"

    def __repr__(self) -> str:
        if self.data is None:
            return "\n".join([self._describe(), *self.notices, *list_known(self.run), *list_warnings(self.run)])
        remarks = Report(notes=[self._describe(), *list_known(self.run), *point_to_failures(self.run)])
        return "\n\n".join(filter(None, [repr(self._report), repr(remarks)]))

    @property
    def _arguments(self) -> dict[str, Any]:
        """The arguments of the report, from which a page can render it again."""
        figures = choose_figures(self.data) if self.data is not None and self.with_tables else []
        return {"figures": figures, "most": MOST_ROWS, "remarks": list(list_warnings(self.run))}

    # A front end gets the result as text and as HTML.
    @cached_property
    def _report(self) -> Report:
        from ngbkit.metrics.tables import build_report  # NumPy is not imported with the extension

        return Report() if self.data is None else build_report(self.data, **self._arguments)

    def _describe(self) -> str:
        line = describe(self.run)
        if self.data is None:
            return line
        steps = f" ({seconds})" if (seconds := describe_seconds(self.run)) else ""
        # A replay takes another time whenever it is published, and none of it for measuring.
        elapsed = "" if self.run.is_replay else f" after {format_duration(self.elapsed_s)}{steps}"
        return f"{line}, {self.run.state}{elapsed}; run {self.run.id}"


@dataclass(frozen=True, slots=True)
class StatusLine:
    """A line of text on the progress of something."""

    text: str

    def _repr_html_(self) -> str:
        return escape(self.text)

    def __repr__(self) -> str:
        return self.text


@dataclass(slots=True)
class LiveTable:
    """The table of a live run so far; empty before its first results, and for a run of many trials."""

    _html: str = ""
    # The number of recorded trials in it, and the measurements of others.
    _done: int = 0
    _interim: Mapping[str, Record] = field(default_factory=dict)
    _updated_s: float = 0.0

    def render(self, run: Run) -> str:
        """Render the results so far as HTML; again only if there are more, and at most twice a second."""
        progress = run.progress
        done, interim = progress.done, run.interim
        is_new = done < progress.total and (done != self._done or (interim and interim is not self._interim))
        if not is_new or progress.total > _MOST_TRIALS or time.monotonic() - self._updated_s < _TABLE_PAUSE_S:
            return self._html
        from ngbkit.metrics import tables
        from ngbkit.metrics.disturbances import describe_contention
        from ngbkit.metrics.rendering import to_texts

        try:
            data = _assemble(run, interim.values())
            frame = tables.compact(data, choose_figures(data)[0])
        except NgbkitError:  # a display never ends a run
            return self._html
        frame.attrs["title"] += ", so far"
        # The lines of progress above it say what disturbs the run.
        frame.attrs["notes"] = [note for note in frame.attrs["notes"] if note != describe_contention(data)]
        self._html, self._done, self._interim = to_texts(frame).to_html(), done, interim
        self._updated_s = time.monotonic()
        return self._html


def _assemble(run: Run, interim: Iterable[Record]) -> Data:
    """Assemble the records of a run and those of trials in flight; they are never bound or saved."""
    from ngbkit.dataset.assembly import assemble
    from ngbkit.sweep.journal import Journal

    with Journal(run.folder / "journal.sqlite", writable=False) as journal:
        records, environments, facts = list(journal.records()), journal.notes("environment"), journal.notes("facts")
    return assemble(run.sweep, [*records, *interim], environments=environments, run_id=run.id, facts=facts)


@dataclass(slots=True)
class RunDisplay:
    """The progress of something, and then its results, which are an output of their own.

    A kernel updates the output of the progress, and empties it before the results: not every front end shows updates.
    A terminal has no outputs: there the line of progress overwrites itself, and the results follow.
    """

    shell: InteractiveShell
    notices: Sequence[str] = ()  # displayed above a run in a terminal, and below its bar elsewhere
    _handle: Any = None
    _began: float = field(default_factory=time.monotonic)
    _printed: set[str] = field(default_factory=set)
    _table: LiveTable = field(default_factory=LiveTable)

    def show(self, run: Run, data: Data | None = None) -> None:
        """Display the progress of a run with its table so far, or, in its place, the data of one that has ended."""
        table = self._table.render(run) if data is None and not _is_terminal(self.shell) else ""
        self._update(Snapshot(run, data, time.monotonic() - self._began, notices=self.notices, table=table))

    def show_results(self, run: Run, data: Data, *, with_tables: bool = True) -> None:
        """Display a run that has ended, with the tables of its data or without."""
        from IPython.display import display

        self.clear()
        display(Snapshot(run, data, time.monotonic() - self._began, with_tables))  # type: ignore[no-untyped-call]

    def write(self, line: str) -> None:
        """Display a line of text in the place of the run."""
        self._update(StatusLine(line))

    def clear(self) -> None:
        """Empty the output of the progress, if there is any."""
        if self._handle is not None:
            self._handle.update(StatusLine(""))
        _overwrite("")

    def _update(self, content: Snapshot | StatusLine) -> None:
        from IPython.display import DisplayHandle

        if _is_terminal(self.shell):
            self._print(repr(content).splitlines())
        elif self._handle is None:
            self._handle = DisplayHandle()  # type: ignore[no-untyped-call]  # IPython's own
            self._handle.display(content)
        else:
            self._handle.update(content)

    def _print(self, lines: Sequence[str]) -> None:
        """Overwrite the line of progress; each further line is printed above it, once."""
        for line in lines[1:]:
            if line not in self._printed:
                self._printed.add(line)
                _overwrite("")
                sys.stderr.write(f"{line}\n")
        _overwrite(lines[0] if lines else "")


def follow(run: Run, shell: InteractiveShell) -> None:
    """Display a live run, and update it at each event, at most five times a second, until it has ended.

    Its results replace it, since other cells have followed. For a front end without updates, and above the line that
    the user of a terminal may be typing, a line says that it has ended.
    """
    display = RunDisplay(shell)
    if run.ended:
        display.show_results(run, run.dataset())
        return
    if _is_terminal(shell):
        _print_state(run)
    else:
        update = _throttle(lambda run: display.show(run, run.dataset() if run.ended else None))
        update(run)
        run.subscribe(update)
        call_at_end(run, update)  # it may have ended before the subscription
    if not getattr(shell, "simple_prompt", False):  # which cannot print above itself
        context = copy_context()  # of this cell, whatever runs by then
        call_at_end(run, lambda run: context.run(_print_state, run))


def _print_state(run: Run) -> None:
    print(f"run {run.id}: {describe(run)}{f', {run.state}' if run.ended else ''}")  # noqa: T201  a terminal's display


def call_at_end(run: Run, callback: Callable[[Run], object]) -> None:
    """Call back once, as soon as the run has ended: on the run's own thread, or on this one if it has ended already."""
    once = threading.Lock()  # never released: both threads may get here

    def listen(run: Run) -> None:
        if run.ended and once.acquire(blocking=False):
            callback(run)

    run.subscribe(listen)
    listen(run)


def _throttle(show: Callable[[Run], None]) -> Callable[[Run], None]:
    """Limit calls of `show` to five a second, and to one after the run has ended."""
    last_s, finished = 0.0, False

    def listen(run: Run) -> None:
        nonlocal last_s, finished
        if not finished and (run.ended or time.monotonic() - last_s >= PAUSE_S):
            last_s, finished = time.monotonic(), run.ended
            show(run)

    return listen


def _overwrite(line: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[2K{line}")
        sys.stderr.flush()


def _is_terminal(shell: InteractiveShell) -> bool:
    return getattr(shell, "kernel", None) is None
