"""The status of every trial of a live run, as a small table: a row for each network, a column for each compiler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from html import escape

from ngbkit.metrics.estimate import INCONCLUSIVE
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.records import NOT_CHECKED
from ngbkit.sweep.trials import Trial

PENDING = "pending"
# A cell with more trials than this shows counts.
_MOST_SIGNS = 24
_SIGNS = {"ok": "●", NOT_CHECKED: INCONCLUSIVE, PENDING: "○", "unsupported": "–"}
_FAILED = "✕"
_GREY, _RED = "rgba(128, 128, 128, 0.4)", "#d1495b"  # both visible on white and on black
_CELL = f"padding: 0.15em 0.6em; text-align: left; border-bottom: 1px solid {_GREY};"
_LEGEND = (
    f"{_SIGNS['ok']} ok, {INCONCLUSIVE} not checked, {_SIGNS[PENDING]} pending, {_SIGNS['unsupported']} unsupported, "
    f"{_FAILED} no result"
)

Cells = dict[tuple[str, str], list[Trial]]
"""The trials of each cell, by network (and device, if there are several) and compiler."""


def group_trials(sweep: Grid) -> Cells:
    """Group the trials of a sweep by the cell of the table that shows them."""
    cells: Cells = {}
    with_device = len(sweep.devices) > 1
    for trial in sweep.trials():
        row = f"{trial.workload} on {trial.device}" if with_device else trial.workload
        cells.setdefault((row, trial.compiler), []).append(trial)
    return cells


def to_html(cells: Cells, statuses: Mapping[str, str]) -> str:
    """Render the table, without script or request, from the status of each trial that has a record, by its id.

    A cell has a sign for each trial, in the order of factors and batch sizes, and the counts of each status as its
    tooltip and for screen readers.
    """
    rows = dict.fromkeys(row for row, _ in cells)
    compilers = dict.fromkeys(compiler for _, compiler in cells)
    head = "".join(f'<th scope="col" style="{_CELL}">{escape(name)}</th>' for name in ("", *compilers))
    body = "".join(
        f'<tr><th scope="row" style="{_CELL}">{escape(row)}</th>'
        + "".join(
            _cell([statuses.get(trial.id, PENDING) for trial in cells.get((row, name), [])]) for name in compilers
        )
        + "</tr>"
        for row in rows
    )
    return (
        '<div style="overflow: auto; max-height: 20em;"><table aria-label="status of the trials" '
        f'style="border-collapse: collapse; color: inherit;"><thead><tr>{head}</tr></thead><tbody>{body}</tbody>'
        f"</table></div><small>{_LEGEND}</small>"
    )


def _cell(statuses: list[str]) -> str:
    counts = Counter(statuses)
    summary = ", ".join(f"{count} {status}" for status, count in counts.items())
    signs = "".join(_SIGNS.get(status, _FAILED) for status in statuses)
    failed = any(status not in _SIGNS for status in statuses)
    style = f"{_CELL} color: {_RED};" if failed else _CELL
    content = summary if len(signs) > _MOST_SIGNS else signs
    return f'<td style="{style}" title="{summary}" aria-label="{summary}">{content}</td>'
