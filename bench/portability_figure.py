"""A study of portability as a figure: the speed-up of each network by cost model and runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from portability_study import NOISE, compute_mean

from ngbkit.figures import lines, marks, provenance, theme

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd
    import xarray as xr

_WIDTH, _STEP = 260, 26
_VERDICTS = ("surely faster", "not sure", "surely slower")
_COLOURS = ("#0072B2", "#999999", "#D55E00")
# The ticks of speed-ups, of which the axis has those in its range.
_TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.7, 2.0, 3.0, 5.0, 10.0)


@provenance.traced
def draw(data: xr.Dataset, *, guarded: bool = False) -> alt.FacetChart:
    """The speed-up of every network by cost model, a panel per runtime, with the geometric mean of each row.

    Each has its interval: of a network that of its rounds, of the mean two standard errors over the networks.

    Parameters
    ----------
    data
        The result of `study`.
    guarded
        Draw the guarded choices, whose candidates are measured, instead of the first choices of the cost models.

    Notes
    -----
    A network is faster or slower if its 95 % interval excludes 1 and its speed-up differs from 1 by more than noise.
    """
    import altair as alt

    frame = _build_rows(data, guarded)
    order = data["cost"].values.tolist()
    scale = alt.Scale(type="log", nice=False, padding=12)
    y = alt.Y("cost:N", title=None, sort=order, axis=marks.build_name_axis(order, 220))
    axis = alt.Axis(values=list(_TICKS), labelOverlap="greedy", labelSeparation=6)
    x = alt.X("speedup:Q", title="speed-up over the original network", scale=scale, axis=axis)
    verdicts = alt.Scale(domain=list(_VERDICTS), range=list(_COLOURS))
    colour = alt.Color("is:N", title=None, scale=verdicts, legend=alt.Legend(symbolOpacity=0.75))
    base = alt.Chart().encode(y)
    tooltip = ["network:N", "cost:N", "compiler:N", "speedup:Q", "low:Q", "high:Q", "rules:N"]
    networks, means = (base.transform_filter(f"datum.mean == {number}") for number in (0, 1))
    layers = alt.layer(
        alt.Chart().mark_rule(color="#BBBBBB").encode(x=alt.datum(1, scale=scale)),
        networks.mark_rule(opacity=0.35).encode(alt.X("low:Q", scale=scale), alt.X2("high:Q"), colour),
        networks.mark_circle(size=42, opacity=0.75).encode(x, colour, tooltip=tooltip),
        means.mark_rule(color=theme.BLACK, strokeWidth=2.5).encode(alt.X("low:Q", scale=scale), alt.X2("high:Q")),
        means.mark_tick(color=theme.BLACK, thickness=2.5, size=18).encode(x, tooltip=tooltip[1:-1]),
        data=marks.inline(frame),
        width=_WIDTH,
        height=alt.Step(_STEP),
    )
    panels = data["compiler"].values.tolist()
    facet = alt.Facet("compiler:N", title=None, sort=panels, header=lines.HEADER)
    chart: alt.FacetChart = layers.facet(facet=facet, columns=2)
    title = "the choice after measuring" if guarded else "the first choice of each cost model"
    count = int(np.isfinite(data["speedup"].values).any(axis=(1, 2)).sum())
    subtitle = (
        f"{count} networks at batch size {data.attrs['batch_size']} on {data.attrs['device']}, with 95 % intervals; "
        "black: their mean ± 2 standard errors"
    )
    return lines.finish(
        chart, alt.TitleParams(f"Optimised graphs: {title}", subtitle=[subtitle], fontSize=16, offset=16)
    )


def _build_rows(data: xr.Dataset, guarded: bool) -> pd.DataFrame:
    import pandas as pd

    names = ("guarded", "guarded_low", "guarded_high") if guarded else ("speedup", "low", "high")
    rows: list[dict[str, Any]] = []
    for compiler in data["compiler"].values.tolist():
        for cost in data["cost"].values.tolist():
            selected = data.sel(compiler=compiler, cost=cost)
            values, low, high = (selected[name].values for name in names)
            networks, rules = selected["network"].values.tolist(), selected["steps"].values.tolist()
            for index in np.flatnonzero(np.isfinite(values)).tolist():
                labels = {"network": networks[index], "rules": "" if guarded else rules[index], "mean": 0}
                numbers = {"speedup": values[index], "low": low[index], "high": high[index]}
                verdict = _classify(values[index], low[index], high[index])
                rows.append({"compiler": compiler, "cost": cost, **labels, **numbers, "is": verdict})
            finite = values[np.isfinite(values)]
            if len(finite):
                mean, error = compute_mean(finite)
                ends = {"low": mean * np.exp(-2 * error), "high": mean * np.exp(2 * error)} if error > 0 else {}
                rows.append({"compiler": compiler, "cost": cost, "mean": 1, "speedup": mean, **ends})
    return pd.DataFrame(rows)


def _classify(value: float, low: float, high: float) -> str:
    if low > 1 and value > 1 + NOISE:
        return _VERDICTS[0]
    return _VERDICTS[2] if high < 1 and value < 1 - NOISE else _VERDICTS[1]
