"""Latency distributions: every sample of every trial."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ngbkit.dataset.storage import Data
from ngbkit.figures import captions, lines, marks, provenance, samples, theme

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

_WIDTH, _LINE = 250, 24
_QUANTILES = {"p5": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95}


@provenance.traced
def latency(data: Data, **select: Any) -> alt.FacetChart:
    """Latency distributions, one panel per network and batch size, one row per compiler.

    Each sample is a stroke, a pale one if other work slowed it and estimates leave it out. A bar spans the middle
    half of the others, a thin one nine tenths, and the dot is their median.

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

    trials, remarks = samples.build_panels(data, select)
    timed = samples.extract_samples(data, trials)
    quantiles = _compute_quantiles(timed, trials)
    panels = list(dict.fromkeys(trials["panel"]))
    look = marks.Look.of(trials)
    y = alt.Y("compiler:N", title=None, sort=list(look.labels), axis=marks.build_name_axis(look.labels, 170))
    is_log = lines.needs_log_axis(quantiles, "panel", "median")
    scale = alt.Scale(zero=False, nice=False, padding=10, type="log" if is_log else "linear")
    x = alt.X("ms:Q", title="latency (ms)", scale=scale, axis=alt.Axis(tickCount=5, format=",.3~r"))
    base = alt.Chart().encode(y, look.encode_colour(legend=None))
    strokes = [
        base.transform_filter(f"datum.kind == '{kind}'").mark_tick(thickness=1, size=15, opacity=opacity)
        for kind, opacity in (("sample", 0.35), ("unused", 0.1))
        if kind == "sample" or not timed["used"].all()
    ]
    measured = base.transform_filter("datum.kind == 'trial' && isValid(datum.median)")
    tooltip: list[Any] = ["network:N", "compiler:N", alt.Tooltip("batch_size:Q", title="batch size")]
    tooltip += [alt.Tooltip(f"{name}:Q", title=f"{name} (ms)", format=".4~g") for name in _QUANTILES]
    starts = {name: alt.X(f"{name}:Q", title="latency (ms)", scale=scale) for name in ("p5", "p25", "median")}
    missing = base.transform_filter("datum.kind == 'trial' && !isValid(datum.median)")
    layers = [
        *(stroke.encode(x) for stroke in strokes),
        measured.mark_rule(strokeWidth=1.2).encode(starts["p5"], alt.X2("p95:Q"), tooltip=tooltip),
        measured.mark_bar(height=7, opacity=0.9).encode(starts["p25"], alt.X2("p75:Q"), tooltip=tooltip),
        measured.mark_point(filled=True, fill=theme.BACKGROUND, size=30, opacity=1, strokeWidth=1.5).encode(
            starts["median"], tooltip=tooltip
        ),
        marks.draw_reasons(missing, trials, "status", ["network:N", "compiler:N", "status:N"]).encode(x=alt.value(6)),
    ]
    layers.append(marks.draw_titles("panel", panels, _WIDTH))
    facet = alt.Facet("panel:N", title=None, sort=panels, header=lines.NO_HEADER)
    points = _concat_points(timed, quantiles)
    chart = alt.layer(*layers, data=marks.inline(points), width=_WIDTH, height=alt.Step(_LINE))
    spacing = {"row": 74, "column": 30}
    grid: alt.FacetChart = chart.facet(facet=facet, columns=min(3, len(panels)), bounds="flush", spacing=spacing)
    grid = grid.resolve_scale(x="independent").resolve_axis(x="independent")
    remarks.append("strokes: samples; bars: the middle half of them, and nine tenths where thin; dots: medians")
    return lines.finish(
        grid, captions.build_title("Latency of every sample (ms)", data, trials, remarks, absolute=True)
    )


def _compute_quantiles(timed: pd.DataFrame, trials: pd.DataFrame) -> pd.DataFrame:
    """The trials with the quantiles of the samples that estimates use, in ms."""
    values = {key: part["ms"].to_numpy() for key, part in timed[timed["used"]].groupby("trial")}
    quantiles = trials.copy()
    for name, share in _QUANTILES.items():
        quantiles[name] = [float(np.quantile(values[key], share)) if key in values else np.nan for key in trials.index]
    return quantiles


def _concat_points(timed: pd.DataFrame, quantiles: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    names = ["panel", "network", "compiler", "batch_size", "status", "error", *_QUANTILES]
    strokes = timed[["panel", "compiler", "ms"]].assign(kind=np.where(timed["used"], "sample", "unused"))
    return pd.concat([quantiles[names].assign(kind="trial"), strokes], ignore_index=True)
