"""The gap between two columns, explained: its sentence, its figure and its table in a notebook."""

from __future__ import annotations

from functools import wraps
from html import escape
from typing import TYPE_CHECKING, Any

from ngbkit.dataset.storage import Data
from ngbkit.metrics.estimate import Estimate
from ngbkit.metrics.explanation import explain as explaining
from ngbkit.metrics.explanation.explanation import Explanation
from ngbkit.metrics.explanation.growth import ExplainedGrowth
from ngbkit.metrics.rendering import to_html, to_text

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

_ROWS, _LEAST_SHARE = 8, 0.02


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


class ChartedGrowth(ExplainedGrowth):
    """Two columns over a condition, with a table and a figure."""

    def to_table(self, depth: int | None = 0) -> pd.DataFrame:
        """The speed-up of each part at each level, for people; by default a row for each kind of operator."""
        import pandas as pd

        frame = self.to_frame(depth)
        frame = frame[frame.groupby("part")["share"].transform("max") >= _LEAST_SHARE]
        columns: dict[str, Any] = {}
        for level, rows in frame.groupby(self.over, sort=False):
            columns[f"{self.over.replace('_', ' ')} {level}"] = _estimate_parts(rows, "speedup")
        columns["BSR"] = _estimate_parts(frame[frame[self.over] == self.levels[-1]], "bsr")
        table = pd.DataFrame(columns).rename_axis("part").reset_index()
        table.attrs = {
            "title": f"speed-up of {self.names[0]} over {self.names[1]} by part of {self.network}",
            "notes": [
                f"BSR: the speed-up at the last level over that at the first; parts of {_LEAST_SHARE:.0%} of a call"
            ],
        }
        return table

    def plot(self, depth: int | None = 0) -> alt.LayerChart:
        """Draw the BSR of each part: see `ngbkit.figures.charts.growth`."""
        from ngbkit.figures.charts.growth import growth

        return growth(self, depth)

    def _repr_html_(self) -> str:
        return f"<p>{escape(str(self))}</p>{to_html(self.to_table())}"

    def __repr__(self) -> str:
        return f"{self}\n\n{to_text(self.to_table())}"


def _estimate_parts(rows: pd.DataFrame, name: str) -> pd.Series[Any]:
    """Build the ratio of each part with its interval; empty where a time is within its noise."""
    import pandas as pd

    values = [
        Estimate(row[name], row[f"{name}_low"], row[f"{name}_high"]) if row[f"{name}_low"] > 0 else ""
        for row in rows.to_dict("records")
    ]
    return pd.Series(values, index=rows["part"], dtype=object)


@wraps(explaining.explain)
def explain(
    data: Data, first: str, second: str, *, over: str | None = None, **labels: Any
) -> ChartedExplanation | ChartedGrowth:
    result = explaining.explain(data, first, second, over=over, **labels)
    if isinstance(result, ExplainedGrowth):
        return ChartedGrowth(**vars(result))
    return ChartedExplanation(**vars(result))
