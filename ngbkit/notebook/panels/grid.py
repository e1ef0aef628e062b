"""The status of every trial of a run that goes on, as a small table: a line a network, a column a compiler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from html import escape

from ngbkit.sweep.grid import Sweep
from ngbkit.sweep.trials import Trial

PENDING = "pending"
# Cells with more trials than this are written as counts.
_MOST_SIGNS = 24
_SIGNS = {"ok": "●", PENDING: "○", "unsupported": "–"}
_FAILED = "✕"
_GREY, _RED = "rgba(128, 128, 128, 0.4)", "#d1495b"  # both visible on white and on black
_CELL = f"padding: 0.15em 0.6em; text-align: left; border-bottom: 1px solid {_GREY};"
_LEGEND = f"{_SIGNS['ok']} ok, {_SIGNS[PENDING]} pending, {_SIGNS['unsupported']} unsupported, {_FAILED} no result"

Cells = dict[tuple[str, str], list[Trial]]
"""The trials by network (and its device, where there are several) and compiler."""


def cells(sweep: Sweep) -> Cells:
    """Where each trial stands: the same for all of a run."""
    found: Cells = {}
    several = len(sweep.devices) > 1
    for trial in sweep.trials():
        line = f"{trial.workload} on {trial.device}" if several else trial.workload
        found.setdefault((line, trial.compiler), []).append(trial)
    return found


def to_html(placed: Cells, statuses: Mapping[str, str]) -> str:
    """The table, without script or request.

    Parameters
    ----------
    placed
        What `cells` gave.
    statuses
        By the ids of trials, those that have a record.

    Returns
    -------
    str
        In each cell a sign a trial, in the order of factors and batch sizes, and in words how many have which status,
        for who reads it aloud or points at it.
    """
    lines = dict.fromkeys(line for line, _ in placed)
    compilers = dict.fromkeys(compiler for _, compiler in placed)
    head = "".join(f'<th scope="col" style="{_CELL}">{escape(name)}</th>' for name in ("", *compilers))
    body = "".join(
        f'<tr><th scope="row" style="{_CELL}">{escape(line)}</th>'
        + "".join(_cell([statuses.get(one.id, PENDING) for one in placed.get((line, name), [])]) for name in compilers)
        + "</tr>"
        for line in lines
    )
    return (
        '<div style="overflow: auto; max-height: 20em;"><table aria-label="status of the trials" '
        f'style="border-collapse: collapse; color: inherit;"><thead><tr>{head}</tr></thead><tbody>{body}</tbody>'
        f"</table></div><small>{_LEGEND}</small>"
    )


def _cell(statuses: list[str]) -> str:
    counts = Counter(statuses)
    told = ", ".join(f"{count} {status}" for status, count in counts.items())
    signs = "".join(_SIGNS.get(status, _FAILED) for status in statuses)
    failed = any(status not in _SIGNS for status in statuses)
    style = f"{_CELL} color: {_RED};" if failed else _CELL
    return f'<td style="{style}" title="{told}" aria-label="{told}">{told if len(signs) > _MOST_SIGNS else signs}</td>'
