"""A study of portability as a figure: what each cost model makes of each network, on each runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ngbkit.figures import lines, marks, provenance, theme
from ngbkit.optimizer.portability import NOISE

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd
    import xarray as xr

_WIDTH, _STEP = 260, 26
_WORDS = ("faster", "as fast", "slower")
_COLOURS = ("#0072B2", "#999999", "#D55E00")


@provenance.traced
def draw(data: xr.Dataset, *, guarded: bool = False) -> alt.FacetChart:
    """The speed-up of every network by cost model, a panel a runtime, with the geometric mean of each row.

    Parameters
    ----------
    data
        What `ngbkit.optimizer.study` gave.
    guarded
        Draw what is kept where candidates are measured, and not the cost models' first choices.

    Notes
    -----
    A network counts as faster or slower where its 95 % interval is beyond 1 and it is off by more than noise.
    """
    import altair as alt

    frame = _rows(data, guarded)
    order = data["cost"].values.tolist()
    scale = alt.Scale(type="log", nice=False, padding=12)
    y = alt.Y("cost:N", title=None, sort=order, axis=alt.Axis(labelLimit=220, ticks=False))
    x = alt.X("speedup:Q", title="speed-up over the network as it came", scale=scale, axis=alt.Axis(tickCount=6))
    colour = alt.Color("is:N", title=None, scale=alt.Scale(domain=list(_WORDS), range=list(_COLOURS)))
    base = alt.Chart().encode(y)
    told = ["network:N", "cost:N", "compiler:N", "speedup:Q", "low:Q", "high:Q", "rules:N"]
    one = base.transform_filter("datum.mean == 0")
    drawn = alt.layer(
        alt.Chart().mark_rule(color="#BBBBBB").encode(x=alt.datum(1, scale=scale)),
        one.mark_rule(opacity=0.35).encode(alt.X("low:Q", scale=scale), alt.X2("high:Q"), colour),
        one.mark_circle(size=42, opacity=0.75).encode(x, colour, tooltip=told),
        base.transform_filter("datum.mean == 1")
        .mark_tick(color=theme.BLACK, thickness=2.5, size=18)
        .encode(x, tooltip=["cost:N", "compiler:N", "speedup:Q"]),
        data=marks.inline(frame),
        width=_WIDTH,
        height=alt.Step(_STEP),
    )
    panels = data["compiler"].values.tolist()
    facet = alt.Facet("compiler:N", title=None, sort=panels, header=lines.HEADER)
    whole: alt.FacetChart = drawn.facet(facet=facet, columns=2)
    what = "what is kept after measuring" if guarded else "the first choice of each cost model"
    networks = int(np.isfinite(data["speedup"].values).any(axis=(1, 2)).sum())
    said = (
        f"{networks} networks at batch size {data.attrs['batch_size']} on {data.attrs['device']}; the bar is the mean"
    )
    return lines.finished(whole, alt.TitleParams(f"Optimised graphs: {what}", subtitle=[said], fontSize=16, offset=16))


def _rows(found: xr.Dataset, guarded: bool) -> pd.DataFrame:
    import pandas as pd

    names = ("guarded", "guarded_low", "guarded_high") if guarded else ("speedup", "low", "high")
    rows: list[dict[str, Any]] = []
    for compiler in found["compiler"].values.tolist():
        for cost in found["cost"].values.tolist():
            own = found.sel(compiler=compiler, cost=cost)
            values, low, high = (own[name].values for name in names)
            labels, rules = own["network"].values.tolist(), own["steps"].values.tolist()
            for at in np.flatnonzero(np.isfinite(values)).tolist():
                about = {"network": labels[at], "rules": "" if guarded else rules[at], "mean": 0}
                numbers = {"speedup": values[at], "low": low[at], "high": high[at]}
                word = _word(values[at], low[at], high[at])
                rows.append({"compiler": compiler, "cost": cost, **about, **numbers, "is": word})
            known = values[np.isfinite(values)]
            if len(known):
                mean = float(np.exp(np.log(known).mean()))
                rows.append({"compiler": compiler, "cost": cost, "mean": 1, "speedup": mean})
    return pd.DataFrame(rows)


def _word(value: float, low: float, high: float) -> str:
    if low > 1 and value > 1 + NOISE:
        return _WORDS[0]
    return _WORDS[2] if high < 1 and value < 1 - NOISE else _WORDS[1]
