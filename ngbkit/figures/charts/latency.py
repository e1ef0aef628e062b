"""Every sample of every trial: how latencies are spread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ngbkit.dataset.storage import Data
from ngbkit.figures import captions, lines, marks, provenance, samples

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

_WIDTH, _LINE = 260, 24
_QUANTILES = {"p5": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95}


@provenance.traced
def latency(data: Data, **select: Any) -> alt.FacetChart:
    """Latency distributions, a panel a network and batch size, a line a compiler.

    Each sample is a stroke. A bar holds the middle half of them, a thin one nine tenths, and the dot is the median.

    Parameters
    ----------
    data
        With samples.
    **select
        As for `throughput`.

    Raises
    ------
    MetricError
        The dataset has no samples.
    UnknownNameError, UsageError
        As for `throughput`.
    """
    import altair as alt

    trials, remarks = samples.panelled(data, select)
    taken = samples.taken(data, trials)
    spread = _spread(taken, trials)
    panels = list(dict.fromkeys(trials["panel"]))
    look = marks.Look.of(trials)
    y = alt.Y("compiler:N", title=None, sort=list(look.labels), axis=alt.Axis(labelLimit=170, ticks=False))
    scale = alt.Scale(zero=False, nice=False, padding=10, type="log" if _wide(spread) else "linear")
    x = alt.X("ms:Q", title="latency (ms)", scale=scale, axis=alt.Axis(tickCount=5, format=",.3~r"))
    base = alt.Chart().encode(y, look.colour(legend=None))
    stroke = base.transform_filter("datum.kind == 'sample'").mark_tick(thickness=1, size=15, opacity=0.35)
    whole = base.transform_filter("datum.kind == 'trial' && isValid(datum.median)")
    told = ["network:N", "compiler:N", "batch_size:Q", *(f"{name}:Q" for name in _QUANTILES)]
    ends = {name: alt.X(f"{name}:Q", title="latency (ms)", scale=scale) for name in ("p5", "p25", "median")}
    why = base.transform_filter("datum.kind == 'trial' && !isValid(datum.median)")
    layers = [
        stroke.encode(x),
        whole.mark_rule(strokeWidth=1.2).encode(ends["p5"], alt.X2("p95:Q"), tooltip=told),
        whole.mark_bar(height=7, opacity=0.9).encode(ends["p25"], alt.X2("p75:Q"), tooltip=told),
        whole.mark_point(filled=True, fill="white", size=30, opacity=1, strokeWidth=1.5).encode(
            ends["median"], tooltip=told
        ),
        why.mark_text(align="left", fontSize=10, color=marks.WHY).encode(
            x=alt.value(6), color=alt.value(marks.WHY), text="status:N", tooltip=["status:N", "error:N"]
        ),
    ]
    facet = alt.Facet("panel:N", title=None, sort=panels, header=lines.HEADER)
    chart = alt.layer(*layers, data=marks.inline(_joined(taken, spread)), width=_WIDTH, height=alt.Step(_LINE))
    grid: alt.FacetChart = chart.facet(facet=facet, columns=min(3, len(panels))).resolve_scale(x="independent")
    grid = grid.resolve_axis(x="independent")
    return lines.finished(grid, captions.title("Latency of every sample (ms)", data, trials, remarks))


def _spread(taken: pd.DataFrame, trials: pd.DataFrame) -> pd.DataFrame:
    """The trials with their quantiles, in ms."""
    values = {key: part["ms"].to_numpy() for key, part in taken.groupby("trial")}
    found = trials.copy()
    for name, share in _QUANTILES.items():
        found[name] = [float(np.quantile(values[key], share)) if key in values else np.nan for key in found.index]
    return found


def _wide(spread: pd.DataFrame) -> bool:
    parts = [part["median"] for _, part in spread.groupby("panel", sort=False)]
    return any(lines.spans(part) for part in parts)


def _joined(taken: pd.DataFrame, spread: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    kept = ["panel", "network", "compiler", "batch_size", "status", "error", *_QUANTILES]
    strokes = taken[["panel", "compiler", "ms"]].assign(kind="sample")
    return pd.concat([spread[kept].assign(kind="trial"), strokes], ignore_index=True)
