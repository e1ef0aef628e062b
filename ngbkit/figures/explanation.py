"""The gap between two columns, explained: its sentence, its figure and its table in a notebook."""

from __future__ import annotations

from functools import wraps
from html import escape
from typing import TYPE_CHECKING, Any

from ngbkit.dataset.storage import Data
from ngbkit.metrics.explanation import explain as explaining
from ngbkit.metrics.explanation.explanation import Explanation
from ngbkit.metrics.rendering import to_html, to_text

if TYPE_CHECKING:
    import altair as alt

_ROWS = 8


class ChartedExplanation(Explanation):
    """The gap between two columns, with a table and a figure."""

    def plot(self, depth: int | None = 1) -> alt.VConcatChart:
        """Draw the gap along the network: see `ngbkit.figures.charts.explanation`."""
        from ngbkit.figures.charts.explanation import explanation

        return explanation(self, depth)

    def _ipython_display_(self) -> None:
        """Display the figure, whose blocks open by a click, and the table."""
        from IPython.display import display

        display(self.plot())  # type: ignore[no-untyped-call]  # IPython's own
        display({"text/html": self._repr_html_(), "text/plain": repr(self)}, raw=True)  # type: ignore[no-untyped-call]

    def render(self) -> str:
        """Render the sentence, the largest parts and the notes as HTML."""
        notes = "<br>".join(map(escape, self.list_notes()))
        return f"<p>{escape(str(self))}</p>{to_html(self.to_table(_ROWS))}<p><small>{notes}</small></p>"

    def _repr_html_(self) -> str:
        return self.render()

    def __repr__(self) -> str:
        return "\n".join([str(self), "", to_text(self.to_table(_ROWS)), "", *self.list_notes()])


@wraps(explaining.explain)
def explain(data: Data, first: str, second: str, **labels: Any) -> ChartedExplanation:
    return ChartedExplanation(**vars(explaining.explain(data, first, second, **labels)))
