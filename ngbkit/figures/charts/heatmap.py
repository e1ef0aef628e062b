"""Scaling efficiency by batch size and width: the paper's figure 10."""

from __future__ import annotations

from functools import partial
from typing import Any

import altair as alt

from ngbkit import metrics
from ngbkit.dataset.storage import Data
from ngbkit.figures import captions, lines, marks, provenance, rows, theme
from ngbkit.metrics.estimate import INCONCLUSIVE
from ngbkit.sweep.records import MEASURED

# A cell is narrower where its row of panels would be wider than a page of a notebook.
_CELL, _LEAST_CELL, _LINE, _GAP, _LETTER = 44, 34, 22, 60, 8
# The legend of a scale is narrower than that of names.
_ROW_WIDTH = lines.PAGE_WIDTH + 60
_MISSING = "#DDDDDD"
_DARK_BELOW = 0.43
"""The share of the colour range below which white text has more contrast than black: the luminance of viridis."""


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
    efficiency = rows.wrap_metric(partial(metrics.ase, unlike="mask"), ci)
    values = rows.require_factor(factor, rows.require_batch_sizes(efficiency, "heatmap"), "heatmap", "64,96")
    frame = rows.build_rows(data, values, select, axes=[factor])
    frame["panel"] = frame["network"] + " · " + frame["compiler"]
    panels = list(dict.fromkeys(frame["panel"]))
    frame["mark"] = [_format_cell(row) for row in frame.to_dict("records")]
    most = max(1.0, float(frame["value"].max()))
    cells = frame[frame["panel"].isin(panels[: lines.PANELS])]
    cells = cells[["panel", factor, *_COLUMNS, "mark"]]
    is_text = rows.has_texts(cells[factor])
    scale = alt.Scale(scheme="viridis", domain=[0, most])
    colour = alt.Color("value:Q", title="ASE", scale=scale, legend=alt.Legend(gradientLength=140))
    base = alt.Chart().encode(
        alt.X("batch_size:O", title="batch size", axis=alt.Axis(labelAngle=0)),
        alt.Y(f"{factor}:O", title=factor, sort=list(dict.fromkeys(cells[factor])) if is_text else "descending"),
    )
    labels: list[Any] = ["network:N", "compiler:N", alt.Tooltip("batch_size:Q", title="batch size")]
    labels.append(alt.Tooltip(f"{factor}:{'N' if is_text else 'Q'}"))
    number: list[Any] = [*labels, *marks.build_number_tooltip(cells, {"value": "ASE", "low": "low", "high": "high"})]
    missing = base.transform_filter("!isValid(datum.value)").encode(tooltip=[*labels, "status:N", "error:N"])
    measured = base.transform_filter("isValid(datum.value)").encode(tooltip=[*number, "samples:Q"])
    light = f"isValid(datum.value) && datum.value < {_DARK_BELOW * most}"
    ink = alt.condition(light, alt.value(theme.WHITE), alt.value(theme.BLACK))
    layers = [
        missing.mark_rect(stroke=theme.BACKGROUND, strokeWidth=1, color=_MISSING),
        measured.mark_rect(stroke=theme.BACKGROUND, strokeWidth=1).encode(colour),
        *(part.mark_text(fontSize=11).encode(text="mark:N", color=ink) for part in (missing, measured)),
    ]
    sizes, longest = frame["batch_size"].nunique(), max(map(len, panels))
    columns, width = _fit_panels(frame["compiler"].nunique(), sizes)
    gap = max(_GAP, min(_LETTER * longest, _ROW_WIDTH // columns) - width * sizes)
    layers.append(marks.draw_titles("panel", panels, width * sizes + gap - 10))
    chart: alt.FacetChart = alt.layer(
        *layers, data=marks.inline(cells), width=alt.Step(width), height=alt.Step(_LINE)
    ).facet(
        facet=alt.Facet("panel:N", title=None, sort=panels[: lines.PANELS], header=lines.NO_HEADER),
        columns=columns,
        bounds="flush",
        spacing={"row": 74, "column": gap},
    )
    # The networks of a tree have widths and batch sizes of their own, and a common axis empty cells.
    chart = chart.resolve_scale(x="independent", y="independent").resolve_axis(x="independent", y="independent")
    text = f"Absolute scaling efficiency by batch size and {factor}"
    remarks = lines.describe_omitted(panels)
    return lines.finish(chart, captions.build_title(text, data, frame, remarks, against=["batch_size"]))


_COLUMNS = ("network", "compiler", "batch_size", "value", "low", "high", "samples", "status", "error")


def _fit_panels(compilers: int, batch_sizes: int) -> tuple[int, int]:
    """The number of columns of panels, one per compiler if they fit, and the width of a cell."""
    cell = max(_LEAST_CELL, min(_CELL, (_ROW_WIDTH // compilers - _GAP) // batch_sizes))
    return max(1, min(compilers, _ROW_WIDTH // (cell * batch_sizes + _GAP))), cell


def _format_cell(row: dict[Any, Any]) -> str:
    """The text of a cell, so that the colour is not its only information: a number with its mark, or a status."""
    if row["value"] == row["value"]:
        return f"{row['value']:.2f}{'' if row['conclusive'] else INCONCLUSIVE}"
    return "–" if row["status"] in MEASURED else theme.STATUS_WORDS.get(row["status"], "–")
