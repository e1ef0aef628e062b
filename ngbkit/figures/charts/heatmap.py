"""Scaling efficiency by batch size and width: the paper's figure 10."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ngbkit import metrics
from ngbkit.dataset.storage import Data
from ngbkit.figures import captions, lines, marks, provenance, rows, theme
from ngbkit.metrics.estimate import UNSETTLED

if TYPE_CHECKING:
    import altair as alt

_CELL = 44
_DARK_BELOW = 0.55
"""The share of the colour range below which cells have white text."""


@provenance.traced
def heatmap(data: Data, *, factor: str = "width", ci: float | None = 0.95, **select: Any) -> alt.FacetChart:
    """Absolute scaling efficiency by batch size and width, one panel per network and compiler (the paper's figure 10).

    Where a row of cells fades faster than the one below it, the wider network loses more when the batch grows: the
    batch-width friction, which `ngbkit.metrics.friction` quantifies. The interval is in the tooltip of each cell.

    Parameters
    ----------
    data
        With batch size 1 and another, and at least two values of `factor`; networks that do not take it are excluded.
    factor
        The factor along the y axis.
    ci, **select
        As for `throughput`.

    Raises
    ------
    MetricError
        There is no batch size 1 or no other, or no network with two values of `factor`.
    UnknownNameError, UsageError
        As for `throughput`.
    """
    import altair as alt

    efficiency = rows.wrap_metric(partial(metrics.ase, unlike="mask"), ci)
    values = rows.require_factor(factor, rows.require_batch_sizes(efficiency, "heatmap"), "heatmap", "64,96")
    frame = rows.build_rows(data, values, select, axes=[factor])
    frame["panel"] = frame["network"] + " · " + frame["compiler"]
    panels = list(dict.fromkeys(frame["panel"]))
    frame["mark"] = [_format_cell(row) for row in frame.to_dict("records")]
    most = max(1.0, float(frame["value"].max()))
    cells = frame[frame["panel"].isin(panels[: lines.PANELS])]
    cells = cells[["panel", factor, *(name for name, _ in _COLUMNS), "mark"]]
    scale = alt.Scale(scheme="viridis", domain=[0, most])
    colour = alt.Color("value:Q", title="ASE", scale=scale, legend=alt.Legend(gradientLength=140))
    fill = alt.condition("isValid(datum.value)", colour, alt.value("#DDDDDD"))
    base = alt.Chart().encode(
        alt.X("batch_size:O", title="batch size", axis=alt.Axis(labelAngle=0)),
        alt.Y(f"{factor}:O", title=factor, sort="descending"),
        tooltip=[*(f"{name}:{kind}" for name, kind in _COLUMNS), f"{factor}:Q"],
    )
    light = f"isValid(datum.value) && datum.value < {_DARK_BELOW * most}"
    ink = alt.condition(light, alt.value("white"), alt.value("#1b1b1b"))
    layers = [
        base.mark_rect(stroke="white", strokeWidth=1, invalid=None).encode(color=fill),
        base.mark_text(fontSize=11).encode(text="mark:N", color=ink),
    ]
    step = alt.Step(_CELL)
    chart = alt.layer(*layers, data=marks.inline(cells), width=step, height=alt.Step(_CELL // 2)).facet(
        facet=alt.Facet("panel:N", title=None, sort=panels[: lines.PANELS], header=lines.HEADER),
        columns=frame["compiler"].nunique(),
    )
    text = f"Absolute scaling efficiency by batch size and {factor}"
    remarks = lines.describe_omitted(panels)
    return lines.finish(chart, captions.build_title(text, data, frame, remarks, against=["batch_size"]))


_COLUMNS = (
    ("network", "N"),
    ("compiler", "N"),
    ("batch_size", "Q"),
    ("value", "Q"),
    ("low", "Q"),
    ("high", "Q"),
    ("samples", "Q"),
    ("status", "N"),
    ("error", "N"),
)


def _format_cell(row: dict[Any, Any]) -> str:
    """The text of a cell, so that the colour is not its only information: a number with its mark, or a status."""
    if row["value"] == row["value"]:
        return f"{row['value']:.2f}{'' if row['settled'] else UNSETTLED}"
    return "–" if row["status"] == "ok" else theme.STATUS_WORDS.get(row["status"], "–")
