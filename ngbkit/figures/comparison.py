"""Two runs of one sweep, with a table for a notebook and a chart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import log
from typing import TYPE_CHECKING

from ngbkit.dataset.storage import Data
from ngbkit.figures.comparison_table import TabulatedComparison
from ngbkit.metrics import comparison
from ngbkit.metrics.beside import split_sides
from ngbkit.metrics.rendering import to_html, to_text
from ngbkit.user_text import format_count

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

_MOST_ROWS = 40
_LONG = 8
_MOST_LINES = 200
# Readable on light and on dark pages.
_ADDED, _REMOVED = "rgba(46, 139, 192, 0.22)", "rgba(213, 94, 0, 0.22)"


class ChartedComparison(TabulatedComparison):
    """Two runs of one sweep, side by side, with a table and a chart."""

    def plot(self) -> alt.LayerChart:
        """Draw the change of each trial: see `ngbkit.figures.charts.changes`."""
        from ngbkit.figures.charts.changes import changes

        return changes(self)

    @property
    def is_long(self) -> bool:
        """Return whether its table is longer than a glance."""
        return len(self.trials) > _LONG

    def _repr_html_(self) -> str:
        return f"<p>{escape(str(self))}</p>{self.render()}"

    def render(self) -> str:
        """Render the table and the difference of the cells as HTML."""
        table, hidden = self._shorten()
        rest = f"<p><small>… and {hidden} more trials, in .to_table()</small></p>" if hidden else ""
        return f"{to_html(table)}{rest}{self._render_difference()}"

    def __repr__(self) -> str:
        table, hidden = self._shorten()
        rest = [f"… and {hidden} more trials, in .to_table()"] if hidden else []
        return "\n".join([to_text(table), *rest, str(self)])

    def _shorten(self) -> tuple[pd.DataFrame, int]:
        """Keep the rows of a table that a page has room for, those that changed first, and count the others."""
        table = self.to_table()
        if len(table) > _MOST_ROWS:
            changes = table["ratio"].map(_find_size).where(table["verdict"].isin(self.words), -1)
            places = sorted(changes.argsort(kind="stable")[::-1][:_MOST_ROWS])
            shortened = table.iloc[places]
            shortened.attrs = table.attrs
            return shortened, len(table) - _MOST_ROWS
        return table, 0

    def _render_difference(self) -> str:
        """Render the difference of the cells as HTML, folded; empty for the same cell."""
        lines = self.runs.difference.splitlines()
        if not lines:
            return ""
        counts = [sum(line[:1] == sign and line[:3] != 3 * sign for line in lines) for sign in "+-"]
        text = "\n".join(_colour_lines(lines[:_MOST_LINES]))
        added = format_count(counts[0], "line", "lines")
        return (
            f"<details><summary>the cells differ: {added} added, {counts[1]} removed</summary>"
            f'<pre style="color: inherit; background: transparent;">{text}</pre></details>'
        )


def compare(
    first: Data, second: Data, metric: str | None = None, *, names: Sequence[str] = (), beside: str = ""
) -> ChartedComparison:
    """See `ngbkit.metrics.comparison.compare`."""
    return ChartedComparison(**vars(comparison.compare(first, second, metric, names=names, beside=beside)))


def compare_sides(data: Data, label: str, name: str = "this run", metric: str | None = None) -> ChartedComparison:
    """Compare the networks of an earlier run, which have that label, with those measured beside them."""
    return compare(*split_sides(data, label), metric or "throughput", names=(label, name))


def _find_size(change: float) -> float:
    """Find the size of a change, whichever its direction."""
    return abs(log(change)) if change > 0 else 0.0


def _colour_lines(lines: Sequence[str]) -> Iterator[str]:
    """Colour the lines of a difference that were added and removed."""
    for line in lines:
        colour = {"+": _ADDED, "-": _REMOVED}.get(line[:1])
        yield f'<span style="background: {colour}">{escape(line)}</span>' if colour else escape(line)
