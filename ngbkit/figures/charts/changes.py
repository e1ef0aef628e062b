"""Two runs of one sweep against each other: a mark on the diagonal is unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ngbkit.figures import lines, marks, theme

if TYPE_CHECKING:
    import altair as alt

    from ngbkit.metrics.comparison import Comparison

_SIDE = 360


def changes(comparison: Comparison) -> alt.LayerChart:
    """The metric of every trial in both runs, with both intervals; filled marks changed beyond these.

    Marks of trials that are not conclusive in both runs are pale: what changed there, other work may have bent.

    Parameters
    ----------
    comparison
        The result of `ngbkit.metrics.comparison.compare`.
    """
    import altair as alt

    frame = comparison.trials
    ends = [frame[["first", "second"]].min().min(), frame[["first", "second"]].max().max()]
    scale = alt.Scale(type="log", nice=False, padding=16, domain=ends)
    axis = alt.Axis(tickCount=5, format=".3~s")
    x = alt.X("first:Q", title=f"{comparison.metric}, first run", scale=scale, axis=axis)
    y = alt.Y("second:Q", title=f"{comparison.metric}, second run", scale=scale, axis=axis)
    compilers = list(dict.fromkeys(frame["compiler"]))
    palette = alt.Scale(domain=compilers, range=list(theme.assign_colours(compilers).values()))
    colour = alt.Color("compiler:N", scale=palette, legend=alt.Legend(symbolType="circle", symbolOpacity=1))
    base = alt.Chart().encode(color=colour)
    names = [str(name) for name in frame if not str(name).endswith(("_low", "_high"))]
    tooltip = [alt.Tooltip(f"{name}:{'Q' if name in ('first', 'second', 'change') else 'N'}") for name in names]
    changed = alt.condition("datum.is != 'same'", alt.value(1.0), alt.value(0.0))
    frame = frame.astype({"conclusive": bool})
    strength = alt.condition("datum.conclusive", alt.value(1.0), alt.value(0.3))
    chart: alt.LayerChart = alt.layer(  # type: ignore[assignment]  # of charts without facets
        alt.Chart(alt.InlineData(values=[{"first": end, "second": end} for end in ends]))
        .mark_line(color="#BBBBBB", strokeDash=[4, 4])
        .encode(x, y),
        base.mark_rule(opacity=0.35).encode(alt.X("first_low:Q", scale=scale), y, alt.X2("first_high:Q")),
        base.mark_rule(opacity=0.35).encode(x, alt.Y("second_low:Q", scale=scale), alt.Y2("second_high:Q")),
        base.mark_point(size=46, filled=False, strokeWidth=1.6).encode(
            x, y, fill=colour, fillOpacity=changed, opacity=strength, tooltip=tooltip
        ),
        data=marks.inline(frame),
        width=_SIDE,
        height=_SIDE,
    )
    title = alt.TitleParams(
        f"The same sweep twice: {comparison.metric}",
        subtitle=[
            str(comparison),
            "filled: changed beyond the intervals"
            + ("; pale: not conclusive in both" if comparison.inconclusive else ""),
            *comparison.unlike[:6],
        ],
        fontSize=16,
        offset=16,
    )
    return lines.finish(chart, title)
