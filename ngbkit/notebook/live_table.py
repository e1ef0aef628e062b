"""The table of a live run so far, which grows with each group, and with the rounds of a long one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ngbkit.commands.shell import choose_figures
from ngbkit.errors import NgbkitError
from ngbkit.sweep.records import Record

if TYPE_CHECKING:
    from ngbkit.dataset.storage import Data
    from ngbkit.runs import Run

# Intervals of more trials would take the time of a core that measures.
_MOST_TRIALS = 200
_PAUSE_S = 0.5


@dataclass(slots=True)
class LiveTable:
    """The latest table of a run; empty before its first results, and for a run of many trials."""

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
        if not is_new or progress.total > _MOST_TRIALS or time.monotonic() - self._updated_s < _PAUSE_S:
            return self._html
        from ngbkit.metrics import tables
        from ngbkit.metrics.conclusions import describe_contention
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
