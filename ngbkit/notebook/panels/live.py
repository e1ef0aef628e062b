"""A run while it goes on: how far each device is, what became of each trial, and what was measured so far."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING

import ipywidgets as widgets

from ngbkit.errors import NgbkitError
from ngbkit.notebook.panels import grid
from ngbkit.runs.progress_display import PAUSE_S, describe, remarks
from ngbkit.runs.time_left import duration

if TYPE_CHECKING:
    from ngbkit.runs import Run
    from ngbkit.runs.progress import Progress

# The chart is made of the whole dataset: it takes at most this share of the time, and is not made more often than this.
_SHARE, _CHART_EVERY_S = 0.2, 2.0
_REFRESH_S = 1.0


class Live(widgets.VBox):  # type: ignore[misc, unused-ignore]
    """Draws a run, at most five times a second, from a thread of its own."""

    def __init__(self) -> None:
        self._run: Run | None = None
        self.bars, self.trials, self.chart = widgets.HTML(), widgets.HTML(), widgets.HTML()
        super().__init__([self.bars, self.trials, self.chart])

    def follow(self, run: Run, ended: Callable[[Run], None]) -> None:
        """Draw a run until it has ended, and then call `ended`; a run that was followed before is left alone."""
        self.chart.value = ""
        self._run = run
        threading.Thread(target=self._draw, args=(run, ended), name=f"ngbkit-panel-{run.id}", daemon=True).start()

    def _draw(self, run: Run, ended: Callable[[Run], None]) -> None:
        placed = grid.cells(run.sweep)
        drawn, charted, wait_s = -1, -1, 0.0
        last = time.monotonic()
        while self._run is run:
            over = run.ended
            done = run.progress.done
            self.bars.value = _bars(run)
            if done != drawn:
                drawn, self.trials.value = done, grid.to_html(placed, run.statuses)
            if done != charted and done and (over or time.monotonic() - last >= wait_s):
                began = time.monotonic()
                charted = done
                self._show_chart(run)
                last = time.monotonic()
                wait_s = max(_CHART_EVERY_S, (last - began) / _SHARE)
            if over:
                ended(run)
                return
            run.wait_for_change(_REFRESH_S)
            run.wait(PAUSE_S)

    def _show_chart(self, run: Run) -> None:
        from ngbkit import figures
        from ngbkit.figures import renderer

        try:
            picture = renderer.to_html(figures.overview(run.dataset()).to_dict())
        except NgbkitError as error:
            self.chart.value = f"<small>{escape(str(error))}</small>"
        else:
            self.chart.value = picture


def _bars(run: Run) -> str:
    lines = [escape(describe(run))]
    if run.error is not None:
        lines.append(escape(str(run.error)))
    for device in run.sweep.devices:
        lines.append(_bar(device, run.progress_of(device), run.ended))
    return "<br>".join([*lines, *(f"<small>{escape(line)}</small>" for line in remarks(run))])


def _bar(device: str, now: Progress, ended: bool) -> str:
    left = "" if now.remaining_s is None or ended else f", about {duration(now.remaining_s)} left"
    text = f"{device}: {now.done} of {now.total}{left}" + ("" if ended else f": {now.text}")
    bar = f'<progress value="{now.done}" max="{now.total}" aria-label="{escape(device)}"></progress>'
    return f"{bar} {escape(text)}"
