"""Scaling efficiency by batch size and width: the paper's figure 10."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ngbkit import metrics
from ngbkit.dataset.storage import Data
from ngbkit.figures import captions, lines, marks, provenance, rows, theme

if TYPE_CHECKING:
    import altair as alt

_CELL = 44
_DARK_BELOW = 0.55
"""Of the colours' range: what is written on darker ones is white."""


@provenance.traced
def heatmap(data: Data, *, factor: str = "width", ci: float | None = 0.95, **select: Any) -> alt.FacetChart:
    """Absolute scaling efficiency by batch size and width, a panel a network and compiler (the paper's figure 10).

    Where a line of cells fades faster than the one below it, the wider network loses more by a larger batch: the
    batch-width friction, which `ngbkit.metrics.friction` gives as a number. The interval is in each cell's tooltip.

    Parameters
    ----------
    data
        With batch size 1 and another, and at least two values of `factor`; networks that do not take it are left out.
    factor
        What is along the y axis.
    ci, **select
        As for `throughput`.

    Raises
    ------
    MetricError
        There is no batch size 1, or no network with two values of `factor`.
    UnknownNameError, UsageError
        As for `throughput`.
    """
    import altair as alt

    efficiency = rows.of_metric(partial(metrics.ase, unlike="mask"), ci)
    values = rows.over(factor, efficiency, "heatmap", "64,96")
    frame = rows.rows(data, values, select, axes=[factor])
    frame["panel"] = frame["network"] + " · " + frame["compiler"]
    panels = list(dict.fromkeys(frame["panel"]))
    frame["mark"] = [_written(row) for row in frame.to_dict("records")]
    most = max(1.0, float(frame["value"].max()))
    kept = [
        "panel",
        "network",
        "compiler",
        factor,
        "batch_size",
        "value",
        "low",
        "high",
        "status",
        "error",
        "samples",
        "mark",
    ]
    shown = frame[frame["panel"].isin(panels[: lines.PANELS])]
    scale = alt.Scale(scheme="viridis", domain=[0, most])
    colour = alt.Color("value:Q", title="ASE", scale=scale, legend=alt.Legend(gradientLength=140))
    there = alt.condition("isValid(datum.value)", colour, alt.value("#DDDDDD"))
    tooltip = [f"{name}:{kind}" for name, kind in _TOLD] + [f"{factor}:Q"]
    base = alt.Chart().encode(
        alt.X("batch_size:O", title="batch size", axis=alt.Axis(labelAngle=0)),
        alt.Y(f"{factor}:O", title=factor, sort="descending"),
        tooltip=tooltip,
    )
    light = f"isValid(datum.value) && datum.value < {_DARK_BELOW * most}"
    ink = alt.condition(light, alt.value("white"), alt.value("#1b1b1b"))
    layers = [
        base.mark_rect(stroke="white", strokeWidth=1, invalid=None).encode(color=there),
        base.mark_text(fontSize=11).encode(text="mark:N", color=ink),
    ]
    step = alt.Step(_CELL)
    chart = alt.layer(*layers, data=marks.inline(shown[kept]), width=step, height=alt.Step(_CELL // 2)).facet(
        facet=alt.Facet("panel:N", title=None, sort=panels[: lines.PANELS], header=lines.HEADER),
        columns=frame["compiler"].nunique(),
    )
    left_out = panels[lines.PANELS :]
    remarks = [f"{len(left_out)} more panels are not drawn, from {left_out[0]} on"] if left_out else []
    text = f"Absolute scaling efficiency by batch size and {factor}"
    return lines.finished(chart, captions.title(text, data, frame, remarks, against=["batch_size"]))


_TOLD = (
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


def _written(row: dict[Any, Any]) -> str:
    """A number, or the sign of what became of the trial: colour is not all there is to read."""
    if row["value"] == row["value"]:
        return f"{row['value']:.2f}"
    return "–" if row["status"] == "ok" else theme.STATUS_WORDS.get(row["status"], "–")
