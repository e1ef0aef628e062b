"""The gain or the loss of each part of a network when a condition grows, sorted, beside a line at none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ngbkit.device.timing.normal import LEVEL
from ngbkit.figures import captions, lines, marks

if TYPE_CHECKING:
    import altair as alt

    from ngbkit.metrics.explanation.growth import ExplainedGrowth

_WIDTH, _ROW, _NAMES, _LETTERS, _LEAST_SHARE = 420, 18, 250, 100, 0.02
_GUIDE, _GAIN, _LOSS, _NEITHER = "#888888", "#2E8BC0", "#D55E00", "#8A8A8A"


def growth(result: ExplainedGrowth, depth: int | None = 0) -> alt.LayerChart:
    """The speed-up of each part at the last level over that at the first, with its interval.

    Where the first column gains, a point is blue; where it loses, it is orange; grey may be neither. Parts that are
    never 2 % of a call are left out.

    Parameters
    ----------
    result
        The result of ``ds.ngb.explain(first, second, over="batch_size")``.
    depth
        Parts are modules of that depth; 0 for kinds of operators, None for pieces.
    """
    import altair as alt

    frame = result.to_frame(depth)
    is_large = frame.groupby("part")["share"].transform("max") >= _LEAST_SHARE
    rows = frame[(frame[result.over] == result.levels[-1]) & is_large].copy()
    # A time of noise may be below zero, such as that between kernels: its ratio says nothing.
    is_ratio = (rows[["bsr", "bsr_low", "bsr_high"]] > 0).all(axis=1)
    rows, left_out = rows[is_ratio].copy(), rows.loc[~is_ratio, "part"].tolist()
    rows["side"] = np.select([rows["bsr_high"] < 1, rows["bsr_low"] > 1], ["loses", "gains"], "neither")
    rows = rows.sort_values("bsr", ascending=False) if depth == 0 else rows
    names = rows["part"].tolist()
    scale = alt.Scale(type="log", nice=False, padding=10)
    first, second = result.names
    title = [f"speed-up over {second} at the last level over the first", f"right of the line {first} gains"]
    x = alt.X("bsr:Q", title=title, scale=scale, axis=alt.Axis(grid=False, tickCount=6))
    y = alt.Y("part:N", title=None, sort=names, axis=marks.build_name_axis(names, _NAMES))
    colours = alt.Scale(domain=["gains", "loses", "neither"], range=[_GAIN, _LOSS, _NEITHER])
    colour = alt.Color("side:N", title=None, scale=colours, legend=None)
    tooltip = [alt.Tooltip("part:N"), alt.Tooltip("bsr:Q", format=".3~g"), alt.Tooltip("share:Q", format=".0%")]
    base = alt.Chart().encode(y=y, color=colour)
    layers = [
        alt.Chart(alt.InlineData(values=[{"bsr": 1}])).mark_rule(color=_GUIDE, strokeDash=[4, 4]).encode(x=x),
        base.mark_rule(strokeWidth=2).encode(x=alt.X("bsr_low:Q", title=title, scale=scale), x2="bsr_high:Q"),
        base.mark_point(size=70, filled=True, opacity=1).encode(x=x, tooltip=tooltip),
    ]
    data = marks.inline(rows[["part", "bsr", "bsr_low", "bsr_high", "side", "share"]])
    chart = alt.LayerChart(layer=layers, data=data, width=_WIDTH, height=alt.Step(_ROW))
    remarks = [str(result), f"blue: gains; orange: loses; grey: may be neither; bars: {100 * LEVEL:g} % intervals"]
    if left_out:
        remarks.append(f"not drawn, since their times are within noise of zero: {', '.join(left_out)}")
    heading = alt.TitleParams(
        f"{first} over {second} as {result.over.replace('_', ' ')} grows: {result.network}",
        subtitle=[part for remark in remarks for part in captions.wrap(remark, _LETTERS)],
        fontSize=16,
        offset=16,
    )
    return lines.finish(chart, heading)
