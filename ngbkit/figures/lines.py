"""A panel a network, a line a compiler: what most figures of the paper are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import numpy as np

from ngbkit.errors import UsageError
from ngbkit.figures import marks, rows, theme

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

By = Literal["network", "compiler"]
Chart = TypeVar("Chart", bound="alt.FacetChart | alt.ConcatChart | alt.VConcatChart | alt.LayerChart")

PANELS = 30
"""Panels of one figure, at most; the paper has fifteen networks."""

LOG_FROM = 50
"""Values of one panel that differ by more than this factor are drawn on a logarithmic axis."""

DENSE = 2000
"""A figure of more trials has no mark for each: its lines say as much, and its intervals are bands."""

_WIDTH, _HEIGHT = 200, 140
_FOOT, _STEP = 7, 11
# 0.5 is no 500m.
_NUMBER = "abs(datum.value) < 1000 ? format(datum.value, '~r') : format(datum.value, '.3~s')"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """What is drawn over what.

    Parameters
    ----------
    frame
        The rows, of `ngbkit.figures.rows.rows`.
    x
        The column along the x axis: ``"batch_size"``, on a logarithmic axis, or a factor.
    value
        What the values are, with their unit.
    reference
        A value at which a line is drawn: where a compiler gains nothing.
    zero
        Whether a linear axis begins at zero.
    by
        What has a panel of its own: ``"network"``, in which each compiler is a line, or ``"compiler"``, in which each
        network is one.
    families
        Whether networks stand as `ngbkit.figures.rows.in_families` has them; else they follow each other.
    """

    frame: pd.DataFrame
    x: str
    value: str
    reference: float | None = None
    zero: bool = True
    by: By = "network"
    families: bool = True


def draw(asked: Lines) -> tuple[alt.FacetChart, list[str]]:
    """The panels, each with an axis of its own, and what a reader must know of them.

    Returns
    -------
    chart
        Networks stand as `ngbkit.figures.rows.in_families` has them.
    remarks
        A line on what had no room.

    Raises
    ------
    UsageError
        `by` is neither of the two.
    """
    import altair as alt

    if asked.by not in get_args(By):
        raise UsageError(f"by={asked.by!r} does not fit; valid are {', '.join(map(repr, get_args(By)))}.")
    every, remarks = rows.heard(asked.frame)
    grouped = asked.by == "network" and asked.families
    panels, columns = rows.in_families(every) if grouped else _following(every, asked.by)
    frame = every[every[asked.by].isin(panels[:PANELS])].copy()
    left_out = panels[PANELS:]
    if left_out:
        remarks.append(f"{len(left_out)} more {asked.by}s are not drawn, from {left_out[0]} on")
    look = marks.Look.of(frame, "compiler" if asked.by == "network" else "network")
    frame["place"] = _places(frame, asked.by, asked.x)
    kept = ["network", "compiler", asked.x, "value", "low", "high", "status", "error", "place"]
    kept += [] if len(frame) > DENSE else ["samples"]
    layers = _layers(asked, frame, look)
    # Panels are aligned by their own edges, whatever their axes need: the space between is for those.
    chart = alt.layer(*layers, data=marks.inline(frame[kept]), width=_WIDTH, height=_HEIGHT).facet(
        facet=alt.Facet(f"{asked.by}:N", title=None, sort=panels[:PANELS], header=HEADER),
        columns=columns,
        bounds="flush",
        spacing={"row": 74, "column": 52},
    )
    return chart.resolve_scale(y="independent").resolve_axis(x="independent"), remarks


HEADER = {"labelFontSize": 12, "labelFontWeight": "bold", "labelAnchor": "start", "labelPadding": 4}


def _layers(asked: Lines, frame: pd.DataFrame, look: marks.Look) -> list[alt.Chart]:
    import altair as alt

    x = _x(asked, frame)
    scale = _scale(asked, frame)
    y = alt.Y("value:Q", title=None, scale=scale, axis=alt.Axis(tickCount=5, labelExpr=_NUMBER))
    tooltip = [*("network:N", "compiler:N", f"{asked.x}:Q"), alt.Tooltip("value:Q", title=asked.value, format=".4~g")]
    told = [*tooltip, alt.Tooltip("low:Q", format=".4~g"), alt.Tooltip("high:Q", format=".4~g"), "samples:Q"]
    base = alt.Chart().encode(x, look.colour())
    there = base.transform_filter("isValid(datum.value)")
    dense = len(frame) > DENSE
    layers: list[Any] = []
    if asked.reference is not None:
        layers.append(alt.Chart().mark_rule(color="#999999", strokeDash=[2, 2]).encode(y=alt.datum(asked.reference)))
    if frame["low"].notna().any():
        spread = there.mark_rule(strokeWidth=1.5, opacity=0.55)
        if dense:
            spread = base.mark_area(opacity=0.18, invalid="break-paths-filter-domains")
        layers.append(spread.encode(alt.Y("low:Q", title=None, scale=scale), alt.Y2("high:Q")))
    layers.append(base.mark_line(strokeWidth=2, invalid="break-paths-filter-domains").encode(y, look.dash()))
    if not dense:
        layers.append(there.mark_circle(size=34, opacity=1).encode(y, tooltip=told))
    failed = base.mark_point(filled=True, size=50, opacity=1)
    for place in sorted({int(one) for one in frame["place"] if one >= 0}):
        # At the foot of the panel, whatever its axis: those of one place stand on each other.
        foot = failed.transform_filter(f"datum.place == {place}").encode(look.shape())
        tooltip = ["network:N", "compiler:N", f"{asked.x}:Q", "status:N", "error:N"]
        layers.append(foot.encode(y=alt.value(_HEIGHT - _FOOT - _STEP * place), tooltip=tooltip))
    return layers


def _x(asked: Lines, frame: pd.DataFrame) -> alt.X:
    import altair as alt

    if asked.x != "batch_size":
        values = sorted(set(frame[asked.x].dropna()))
        axis = alt.Axis(values=values, format="~g", grid=False, labelOverlap="greedy")
        return alt.X(f"{asked.x}:Q", title=asked.x, axis=axis, scale=alt.Scale(zero=False, nice=False, padding=12))
    sizes = marks.whole(frame[asked.x])
    axis = alt.Axis(values=sizes, format="d", grid=False, labelOverlap="greedy", labelSeparation=5)
    return alt.X("batch_size:Q", title="batch size", axis=axis, scale=alt.Scale(type="log", base=2, padding=14))


def _scale(asked: Lines, frame: pd.DataFrame) -> alt.Scale:
    import altair as alt

    parts = [part["value"] for _, part in frame.groupby(asked.by, sort=False)]
    # Below what is drawn there is room for the marks of trials without a result.
    places = int(frame["place"].max()) + 1
    room = [_HEIGHT - (_STEP * places + _FOOT - 3 if places else 0), 0]
    if any(spans(part) for part in parts):
        return alt.Scale(type="log", nice=False, padding=10, range=room)
    return alt.Scale(zero=asked.zero, nice=True, padding=0 if asked.zero else 8, range=room)


def spans(values: pd.Series[float]) -> bool:
    """Whether values differ by so much that only a logarithmic axis shows them all."""
    positive = values[values > 0]
    return bool(len(positive) and positive.max() > LOG_FROM * positive.min())


def _following(frame: pd.DataFrame, by: By) -> tuple[list[str], int]:
    """The panels as they come, and how many stand in a line."""
    found = list(dict.fromkeys(frame[by]))
    return found, rows.columns_of(len(found))


def _places(frame: pd.DataFrame, panel: str, x: str) -> np.ndarray:
    """The place of each failed trial among those of its panel and its x; -1 of one that did not fail."""
    failed = frame["status"].isin(list(theme.STATUS_SHAPES))
    found = np.full(len(frame), -1)
    found[failed.to_numpy()] = frame[failed].groupby([panel, x], sort=False).cumcount().to_numpy()
    return found


def finished(chart: Chart, title: alt.TitleParams) -> Chart:
    """The chart, given its title and our look."""
    chart.title, chart.config = title, theme.CONFIG
    return chart
