"""Line charts with one panel per network and one line per compiler, as most figures of the paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import altair as alt
import numpy as np
import pandas as pd

from ngbkit import validation
from ngbkit.figures import marks, rows, theme
from ngbkit.figures.composition import to_figure

By = Literal["network", "compiler"]
Chart = TypeVar("Chart", bound="alt.FacetChart | alt.ConcatChart | alt.VConcatChart | alt.LayerChart")

PANELS = 30
"""The largest number of panels of a figure; the paper has fifteen networks."""

LOG_FROM = 50
"""A panel whose values differ by more than this factor has a logarithmic axis."""

DENSE = 2000
"""A figure of more trials has lines without marks, and bands as intervals."""

PAGE_WIDTH = 745
"""The largest width of the panels of a figure, so that it fits with its legend beside an open side bar, in pixels."""

# A panel is narrower where its row would be wider than a page of a notebook.
_WIDTH, _HEIGHT = 200, 140
_GAP, _ROW_GAP = 64, 74
_FOOT, _STEP = 7, 11
# The largest step between values of a linear x axis, in smallest steps.
_GEOMETRIC = 3
# A logarithmic axis of more decades has a line a decade.
_MOST_DECADES = 4
NUMBER = "abs(datum.value) < 1000 ? format(datum.value, '~r') : format(datum.value, '.3~s')"
"""The label of a number on an axis, such that 0.5 is not 500m."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """The rows, axes and panels of a figure."""

    frame: pd.DataFrame  # of `ngbkit.figures.rows.build_rows`
    x: str  # a column: "batch_size", on a logarithmic axis, or a factor
    value: str  # the name of the values, with their unit
    reference: float | None = None  # a horizontal line, at the value of the baseline
    zero: bool = True  # whether a linear axis begins at zero
    by: By = "network"  # a panel per network with a line per compiler, or the reverse
    families: bool = True  # whether networks are ordered by family
    height: int = _HEIGHT  # of a panel, in pixels


def draw(spec: Lines) -> tuple[alt.FacetChart, list[str]]:
    """The chart, each panel with its own axes, and remarks on panels and compilers that are not drawn."""
    validation.check("by", By, spec.by)
    trials, remarks = rows.drop_failed_compilers(spec.frame)
    if spec.by == "network" and spec.families:
        panels, columns = rows.order_by_family(trials)
    else:
        panels = list(dict.fromkeys(trials[spec.by]))
        columns = rows.count_columns(len(panels))
    frame = trials[trials[spec.by].isin(panels[:PANELS])].copy()
    remarks += describe_omitted(panels, f"{spec.by}s")
    look = marks.Look.of(frame, "compiler" if spec.by == "network" else "network")
    frame = _select_columns(spec, frame)
    width = min(_WIDTH, PAGE_WIDTH // columns - _GAP)
    grid = (columns * (width + _GAP), -(-len(panels[:PANELS]) // columns) * (spec.height + _ROW_GAP))
    layers = _build_layers(spec, frame, look, grid)
    layers.append(marks.draw_titles(spec.by, panels[:PANELS], width + _GAP - 10))
    # Panels are aligned by their own edges, whatever space their axes need; the spacing is for those.
    chart = alt.layer(*layers, data=marks.inline(frame), width=width, height=spec.height).facet(
        facet=alt.Facet(f"{spec.by}:N", title=None, sort=panels[:PANELS], header=NO_HEADER),
        columns=columns,
        bounds="flush",
        spacing={"row": _ROW_GAP, "column": _GAP},
    )
    # Networks have throughputs of their own; compilers are compared, and those of one network on one axis.
    chart = chart.resolve_scale(y="independent" if spec.by == "network" else "shared")
    return chart.resolve_axis(x="independent"), remarks


def draw_panel(spec: Lines, look: marks.Look, width: float) -> alt.LayerChart:
    """Draw the panel of one network, a part of another chart."""
    frame = _select_columns(spec, spec.frame)
    layers = _build_layers(spec, frame, look, None)
    return alt.LayerChart(layer=layers, data=marks.inline(frame), width=width, height=spec.height)


def _select_columns(spec: Lines, frame: pd.DataFrame) -> pd.DataFrame:
    """The columns that layers draw, with the place of each failed trial."""
    names = ["network", "compiler", spec.x, "value", "low", "high", "status", "error"]
    names += [] if frame["conclusive"].all() else ["conclusive"]
    names += ["samples"] if "samples" in frame and len(frame) <= DENSE else []
    columns: pd.DataFrame = frame[names].assign(place=_stack_failures(frame, spec.by, spec.x))
    return columns


def describe_omitted(panels: Sequence[str], kind: str = "panels") -> list[str]:
    """A remark on the panels beyond `PANELS`."""
    omitted = panels[PANELS:]
    return [f"{len(omitted)} more {kind} are not drawn, starting with {omitted[0]}"] if omitted else []


HEADER = {"labelFontSize": 12, "labelFontWeight": "bold", "labelAnchor": "start", "labelPadding": 4}

NO_HEADER = {"labelExpr": "''", "labelPadding": -26}
"""For panels with `marks.draw_titles`: Vega-Lite has a label for each panel of wrapped rows, even without a header."""


def _build_layers(
    spec: Lines, frame: pd.DataFrame, look: marks.Look, grid: tuple[float, float] | None
) -> list[alt.Chart]:
    is_conclusive = "conclusive" not in frame or bool(frame["conclusive"].all())

    x = _build_x(spec, frame)
    scale = _build_scale(spec, frame)
    y, low = (
        alt.Y(f"{name}:Q", title=spec.value, scale=scale, axis=_build_y_axis(frame, scale)) for name in ("value", "low")
    )
    is_text = rows.has_texts(frame[spec.x])
    axis = alt.Tooltip(f"{spec.x}:{'N' if is_text else 'Q'}", title=spec.x.replace("_", " "))
    labels: list[Any] = ["network:N", "compiler:N", axis]
    titles = {"value": spec.value, "low": "low", "high": "high"}
    tooltip: list[Any] = [*labels, *marks.build_number_tooltip(frame, titles)]
    tooltip += ["samples:Q"] if "samples" in frame and frame["samples"].notna().any() else []
    base = alt.Chart().encode(x, look.encode_colour(area=grid))
    measured = base.transform_filter("isValid(datum.value)")
    dense = len(frame) > DENSE and not is_text
    # Intervals at one x would cover each other; areas and the lines through them need no such space.
    shift: dict[str, Any] = {} if dense else {"xOffset": look.dodge()}
    layers: list[Any] = []
    if spec.reference is not None:
        layers.append(alt.Chart().mark_rule(color="#999999", strokeDash=[2, 2]).encode(y=alt.datum(spec.reference)))
    if frame["low"].notna().any():
        interval = measured.mark_rule(strokeWidth=1.5, opacity=0.55, **shift)
        if dense:
            interval = base.mark_area(opacity=0.18, invalid="break-paths-filter-domains")
        layers.append(interval.encode(low, alt.Y2("high:Q")))
    line = base.mark_line(strokeWidth=2, invalid="break-paths-filter-domains", **shift)
    if not is_text:  # a line between texts would suggest an order
        layers.append(line.encode(y, look.encode_dash()))
    if not dense:
        layers += [points.encode(y, tooltip=tooltip) for points in marks.draw_points(measured, frame, size=34, **shift)]
    elif not is_conclusive:
        _, hollow = marks.draw_points(measured, frame, size=34)
        layers.append(hollow.encode(y, tooltip=tooltip))
    failed = base.mark_point(filled=True, size=50, opacity=1)
    for place in range(int(frame["place"].max()) + 1):
        # Stacked at the bottom of the panel, whatever its axis.
        mark = failed.transform_filter(f"datum.place == {place}").encode(look.encode_shape())
        bottom = alt.value(spec.height - _FOOT - _STEP * place)
        layers.append(mark.encode(y=bottom, tooltip=[*labels, "status:N", "error:N"]))
    return layers


def _build_x(spec: Lines, frame: pd.DataFrame) -> alt.X:
    if rows.has_texts(frame[spec.x]):
        order = list(dict.fromkeys(frame[spec.x].dropna()))
        return alt.X(f"{spec.x}:N", title=spec.x, sort=order, axis=alt.Axis(grid=False, labelAngle=0))
    if spec.x != "batch_size":
        values = sorted(set(frame[spec.x].dropna()))
        # Without a precision, Vega would take it from the step: "3e+1" for 32.
        axis = alt.Axis(values=values, format=".6~g", grid=False, labelOverlap="greedy")
        kind: Literal["log", "linear"] = "log" if _is_geometric(values) else "linear"
        scale = alt.Scale(type=kind, zero=False, nice=False, padding=12)
        return alt.X(f"{spec.x}:Q", title=spec.x, axis=axis, scale=scale)
    sizes = sorted({int(size) for size in frame[spec.x]})
    axis = alt.Axis(values=sizes, format="d", grid=False, labelOverlap="greedy", labelSeparation=5)
    return alt.X("batch_size:Q", title="batch size", axis=axis, scale=alt.Scale(type="log", base=2, padding=14))


def _is_geometric(values: Sequence[float]) -> bool:
    """Return whether the steps between values differ so much that a linear axis would not separate the first ones."""
    steps = np.diff(values)
    return len(steps) > 1 and values[0] > 0 and bool(steps.max() > _GEOMETRIC * steps.min())


def _build_scale(spec: Lines, frame: pd.DataFrame) -> alt.Scale:
    # The marks of trials without a result are below the values.
    places = int(frame["place"].max()) + 1
    extent = [spec.height - (_STEP * places + _FOOT - 3 if places else 0), 0]
    if needs_log_axis(frame, spec.by if spec.by == "network" else None):
        return alt.Scale(type="log", nice=False, padding=10, range=extent)
    # Padding could extend the axis of positive values below zero; a round end never does.
    return alt.Scale(zero=spec.zero, nice=True, padding=0, range=extent)


def _build_y_axis(frame: pd.DataFrame, scale: alt.Scale) -> alt.Axis:
    """Build the axis of values; the lines of a logarithmic one would by default stand too close."""
    if scale.type != "log":
        return alt.Axis(tickCount=5, labelExpr=NUMBER)
    values = frame[["value", "low", "high"]].to_numpy(float)
    values = values[np.isfinite(values) & (values > 0)]
    first, last = (math.floor(math.log10(end)) for end in (values.min(), values.max()))
    digits = (1, 2, 5) if last - first < _MOST_DECADES else (1,)
    ticks = [digit * 10.0**power for power in range(first, last + 1) for digit in digits]
    return alt.Axis(values=ticks, labelExpr=NUMBER, labelOverlap="greedy")


def needs_log_axis(frame: pd.DataFrame, panel: str | None, column: str = "value") -> bool:
    """Return whether the values of any panel, or of all on one axis, are positive and differ too much to be linear."""
    if (frame[column] < 0).any():
        return False
    positive = frame[frame[column] > 0].groupby(panel or (lambda _: 0), sort=False)[column]
    return bool((positive.max() > LOG_FROM * positive.min()).any())


def _stack_failures(frame: pd.DataFrame, panel: str, x: str) -> np.ndarray:
    """The position of each failed trial among the failed trials of its panel and x; -1 for other trials."""
    failed = frame["status"].isin(list(theme.STATUS_SHAPES))
    places = np.full(len(frame), -1)
    places[failed.to_numpy()] = frame[failed].groupby([panel, x], sort=False).cumcount().to_numpy()
    return places


def finish(chart: Chart, title: alt.TitleParams) -> Chart:
    """Set the title of a chart, and make it a figure with the look of all."""
    chart.title = title
    return to_figure(chart)
