"""The section of a panel that follows a run: its progress, the state of each trial, and what disturbs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from html import escape

import htpy as h

from ngbkit.errors import translate_commands
from ngbkit.metrics.estimate import INCONCLUSIVE, format_time
from ngbkit.notebook.display import LiveTable
from ngbkit.panels.page import Page
from ngbkit.panels.trial import DIMS, to_text
from ngbkit.runs import Run
from ngbkit.runs.progress_display import PAUSE_S, describe, describe_progress, list_known, list_warnings
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.records import NOT_CHECKED, Failure, Measurement
from ngbkit.sweep.trials import Trial

PENDING = "pending"
# A cell with more trials than this has counts; a run with more rows has the sum of them.
_MOST_SIGNS, _MOST_ROWS = 24, 200
_SIGNS = {"ok": "●", NOT_CHECKED: INCONCLUSIVE, PENDING: "○", "unsupported": "–"}
_FAILED = "✕"
_LEGEND = (
    f"{_SIGNS['ok']} ok, {INCONCLUSIVE} not checked, {_SIGNS[PENDING]} pending, {_SIGNS['unsupported']} unsupported, "
    f"{_FAILED} no result; press one for its last lines"
)
_REFRESH_S = 1.0
_LAST_LINES = 20

Cells = dict[tuple[str, str], list[Trial]]
"""The trials of each cell of the grid, by network (and device, if there are several) and compiler."""


class WatchSection:
    """Follows a run on a thread of its own, and sends at most one message in each `PAUSE_S`."""

    def __init__(self, page: Page, on_end: Callable[[Run], None]) -> None:
        self._page, self._on_end = page, on_end
        self.run: Run | None = None
        self._cells: Cells = {}
        self._first, self._trial = "", ""
        page.actions |= {"stop": lambda _: self._stop(), "trial": self._on_trial}
        page.show("watch", "")

    def follow(self, run: Run) -> None:
        """Show a run until it has ended or another is shown; then call `on_end`."""
        self.run, self._trial = run, ""
        self._cells = group_trials(run.sweep)
        self._first = next(trial.id for trials in self._cells.values() for trial in trials)
        self._page.show("watch", self._render())
        self._update(run)
        self._page.start_thread(run.id, self._follow, run)

    def close(self) -> None:
        """Follow no run any more."""
        self.run = None

    def _follow(self, run: Run) -> None:
        table = LiveTable()
        while self.run is run and not run.ended:
            self._page.guard(self._update, run, table)
            self._page.flush(most=1)
            run.wait_for_change(_REFRESH_S)
            run.wait(PAUSE_S)
        if self.run is run:
            self._page.guard(self._update, run)
            self._page.guard(self._on_end, run)
            self._page.flush()

    def _update(self, run: Run, table: LiveTable | None = None) -> None:
        page, statuses = self._page, run.statuses
        page.show("bars", "".join(_render_bars(run)))
        for number, row in enumerate(_list_rows(self._cells)):
            page.show(f"grid-{number}", self._render_row(row, statuses))
        if self._trial:
            page.show("last-lines", self._describe(run))
        page.show("so-far", "" if table is None else table.render(run))
        page.show("stop", "" if run.ended else h.button({"data-click": "stop"}, type="button")["Stop"])

    def _render(self) -> h.Element:
        compilers = dict.fromkeys(compiler for _, compiler in self._cells)
        rows = _list_rows(self._cells)
        return h.section({"aria-label": "progress of the run"})[
            h.div({"data-part": "bars"}),
            h.div(".row", {"data-part": "stop"}),
            h.div(".scroll", tabindex="0", role="region", aria_label="status of the trials")[
                h.table({"data-arrows": ""}, aria_label="status of the trials")[
                    h.thead[h.tr[h.th(scope="col")["network"], (h.th(scope="col")[name] for name in compilers)]],
                    h.tbody[(h.tr({"data-part": f"grid-{number}"}) for number in range(len(rows)))],
                ]
            ],
            h.small[_LEGEND],
            h.div({"data-part": "last-lines"}, role="status"),
            h.div({"data-part": "so-far"}),
        ]

    def _render_row(self, row: str, statuses: dict[str, str]) -> str:
        compilers = dict.fromkeys(compiler for _, compiler in self._cells)
        cells = (self._render_cell(row, name, statuses) for name in compilers)
        return str(h.fragment[h.th(scope="row")[row], cells])

    def _render_cell(self, row: str, compiler: str, statuses: dict[str, str]) -> h.Element:
        trials = self._cells.get((row, compiler), [])
        by_trial = [statuses.get(trial.id, PENDING) for trial in trials]
        counts = ", ".join(f"{count} {status}" for status, count in Counter(by_trial).items())
        if len(trials) > _MOST_SIGNS:
            failed = [trial for trial in trials if _find_class(statuses.get(trial.id, PENDING)) == "failed"]
            return h.td[counts, " ", (_render_reason(trial) for trial in failed[:1])]
        return h.td(title=counts)[
            (self._render_trial(trial, status) for trial, status in zip(trials, by_trial, strict=True))
        ]

    def _render_trial(self, trial: Trial, status: str) -> h.Element:
        name = describe_trial(trial)
        return h.button(
            f".trial.{_find_class(status)}",
            {"data-click": "trial", "data-value": trial.id},
            type="button",
            title=f"{name}: {status}",
            aria_label=f"{name}: {status}",
            aria_pressed=str(trial.id == self._trial).lower(),
            # Arrow keys reach the others.
            tabindex="0" if trial.id == (self._trial or self._first) else "-1",
        )[_SIGNS.get(status, _FAILED)]

    def _on_trial(self, trial_id: str) -> None:
        self._trial = "" if trial_id == self._trial else trial_id
        if self.run is not None:
            self._page.show("last-lines", self._describe(self.run) if self._trial else "")
            self._update(self.run)

    def _describe(self, run: Run) -> h.Element:
        """Describe the pressed trial: why it failed, what it took, or what the device does meanwhile."""
        trial = run.trial(self._trial)
        record = next((record for record in run.records() if record.trial_id == trial.id), None)
        if isinstance(record, Failure):
            lines = [f"{record.status} ({record.stage}): {record.error}", *record.detail.splitlines()[-_LAST_LINES:]]
        elif isinstance(record, Measurement):
            latencies = sorted(record.latency_s)
            middle = format_time(latencies[len(latencies) // 2], latencies[0], latencies[-1])
            lines = [
                f"{len(latencies)} samples, median {middle} (least to most); compiled in {record.compile_time_s:.2g} s"
            ]
            lines += [record.unchecked] if record.unchecked else []
        else:
            lines = [f"pending; {trial.device}: {run.progress_of(trial.device).text}"]
        return h.div[h.b[describe_trial(trial)], h.pre["\n".join(lines)]]

    def _stop(self) -> None:
        if self.run is not None:
            self.run.stop()
            self._page.report("stopping; measurements are kept")


def group_trials(sweep: Grid) -> Cells:
    """Group the trials of a sweep by the cell of the table that shows them."""
    cells: Cells = {}
    with_device = len(sweep.devices) > 1
    for trial in sweep.trials():
        row = f"{trial.workload} on {trial.device}" if with_device else trial.workload
        cells.setdefault((row, trial.compiler), []).append(trial)
    if len({row for row, _ in cells}) <= _MOST_ROWS:
        return cells
    merged: Cells = {}
    for (_, compiler), trials in cells.items():
        merged.setdefault(("all networks", compiler), []).extend(trials)
    return merged


def describe_trial(trial: Trial) -> str:
    """Write a trial as one line: ``resnet18, depth 2, openvino, batch 8 on cpu``."""
    labels = {name: getattr(trial, name) for name in DIMS}
    return to_text({**labels, **dict(trial.factors)})


def _render_reason(trial: Trial) -> h.Element:
    """Render a button for one of many trials that gave no result."""
    return h.button({"data-click": "trial", "data-value": trial.id}, type="button", title=describe_trial(trial))["why"]


def _list_rows(cells: Cells) -> list[str]:
    return list(dict.fromkeys(row for row, _ in cells))


def _find_class(status: str) -> str:
    """Find the class of CSS of a status."""
    return "ok" if status == "ok" else "pending" if status in (PENDING, "unsupported", NOT_CHECKED) else "failed"


def _render_bars(run: Run) -> Iterator[str]:
    if len(run.sweep.devices) > 1:
        yield f"<p>{escape(describe(run))}</p>"
    if run.error is not None:
        yield f'<p class="error">{escape(translate_commands(str(run.error), "magic"))}</p>'
    for device in run.sweep.devices:
        progress = run.progress_of(device)
        bar = h.progress(value=f"{progress.share:.4f}", aria_label=f"progress of {device}")
        yield str(h.p[bar, " ", f"{device}: {describe_progress(progress, run.ended)}"])
    for remark in [*list_known(run), *list_warnings(run)]:
        yield f"<p><small>{escape(remark)}</small></p>"
