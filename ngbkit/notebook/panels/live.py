"""A live run: the progress of each device, the status of each trial, and a chart of the results so far."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING

import ipywidgets as widgets

from ngbkit.errors import translate_commands
from ngbkit.notebook import verdict
from ngbkit.notebook.panels import grid
from ngbkit.notebook.panels.panel import build_outputs, render_error
from ngbkit.runs.progress_display import PAUSE_S, describe, describe_progress, list_known, list_warnings

if TYPE_CHECKING:
    from ngbkit.runs import Run
    from ngbkit.runs.progress import Progress

# The chart needs the whole dataset: drawing it takes at most this share of the time, with a pause of at least this.
_SHARE, _CHART_EVERY_S = 0.2, 2.0
_REFRESH_S = 1.0


class Live(widgets.VBox):  # type: ignore[misc, unused-ignore]
    """Displays a run, updated by its own thread at most five times a second."""

    def __init__(self) -> None:
        self._run: Run | None = None
        self.bars, self.trials, self.verdict = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self.chart = widgets.Output()
        super().__init__([self.bars, self.trials, self.verdict, self.chart])

    def follow(self, run: Run, on_end: Callable[[Run], None]) -> None:
        """Display a run until it has ended, and then call `on_end`; no longer update the run displayed before."""
        self.verdict.value, self.chart.outputs = "", ()
        self._run = run
        threading.Thread(target=self._draw, args=(run, on_end), name=f"ngbkit-panel-{run.id}", daemon=True).start()

    def _draw(self, run: Run, on_end: Callable[[Run], None]) -> None:
        try:
            self._update(run)
        except Exception as error:  # noqa: BLE001  an exception would end this thread unseen
            self.bars.value = render_error(error)
            run.wait()
        if self._run is run:
            on_end(run)

    def _update(self, run: Run) -> None:
        """Update each part until the run has ended or another is displayed; one that fails shows its error."""
        cells = grid.group_trials(run.sweep)
        table_done, pause_s = -1, 0.0  # the number of trials in the table
        state_drawn = (0, False)  # of the chart, which has the conclusions of a run that has ended
        chart_s = time.monotonic()
        while self._run is run:
            ended = run.ended
            done = run.progress.done
            _show(self.bars, lambda: _render_bars(run))
            if done != table_done:
                table_done = done
                _show(self.trials, lambda: grid.to_html(cells, run.statuses))
            if done and (done, ended) != state_drawn and (ended or time.monotonic() - chart_s >= pause_s):
                start_s = time.monotonic()
                state_drawn = (done, ended)
                _show(self.verdict, lambda: self._draw_results(run))
                chart_s = time.monotonic()
                pause_s = max(_CHART_EVERY_S, (chart_s - start_s) / _SHARE)
            if ended:
                return
            run.wait_for_change(_REFRESH_S)
            run.wait(PAUSE_S)

    def _draw_results(self, run: Run) -> str:
        """Draw the results so far, and render the conclusions of a run that has ended."""
        from ngbkit import figures
        from ngbkit.metrics.conclusions import conclude

        data = run.dataset()
        conclusions = verdict.to_html(conclude(data)) if run.ended else ""
        try:
            self.chart.outputs = build_outputs(figures.overview(data).to_dict())
        except Exception as error:  # noqa: BLE001  the conclusions need no figure
            self.chart.outputs = ()
            return f"{conclusions}<small>{render_error(error)}</small>"
        return conclusions


def _show(output: widgets.HTML, render: Callable[[], str]) -> None:
    try:
        output.value = render()
    except Exception as error:  # noqa: BLE001  the run goes on, and so do the other parts
        output.value = render_error(error)


def _render_bars(run: Run) -> str:
    lines = [escape(describe(run))] if len(run.sweep.devices) > 1 else []
    if run.error is not None:
        lines.append(escape(translate_commands(str(run.error), "magic")))
    for device in run.sweep.devices:
        lines.append(_render_bar(device, run.progress_of(device), run.ended))
    remarks = [*list_known(run), *list_warnings(run)]
    return "<br>".join([*lines, *(f"<small>{escape(line)}</small>" for line in remarks)])


def _render_bar(device: str, progress: Progress, ended: bool) -> str:
    bar = f'<progress value="{progress.share:.4f}" aria-label="{escape(device)}"></progress>'
    return f"{bar} {escape(f'{device}: {describe_progress(progress, ended)}')}"
