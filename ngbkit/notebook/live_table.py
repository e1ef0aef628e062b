"""The table of a live run so far, which grows with each group that has finished."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ngbkit.commands.shell import choose_figures
from ngbkit.errors import NgbkitError

if TYPE_CHECKING:
    from ngbkit.runs import Run

# Intervals of more trials would take the time of a core that measures.
_MOST_TRIALS = 200
_PAUSE_S = 0.5


@dataclass(slots=True)
class LiveTable:
    """The latest table of a run; empty before its first trial is recorded, and for a run of many trials."""

    _html: str = ""
    _done: int = 0
    _updated_s: float = 0.0

    def render(self, run: Run) -> str:
        """Render the trials so far as HTML; again only if more are recorded, and at most twice a second."""
        progress = run.progress
        is_recent = time.monotonic() - self._updated_s < _PAUSE_S
        if not (self._done < progress.done < progress.total <= _MOST_TRIALS) or is_recent:
            return self._html
        from ngbkit.metrics import tables

        try:
            data = run.dataset()
            frame = tables.compact(data, choose_figures(data)[0])
        except NgbkitError:  # a display never ends a run
            return self._html
        frame.attrs["title"] += ", so far"
        self._html, self._done, self._updated_s = tables.to_html(frame), progress.done, time.monotonic()
        return self._html
