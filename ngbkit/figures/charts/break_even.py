"""Compile time against the time saved per call, with lines of equal break-even."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import xarray as xr

from ngbkit import metrics
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError
from ngbkit.figures import captions, lines, marks, provenance, rows, theme
from ngbkit.metrics.economy import Cache
from ngbkit.sweep.column import BASELINE
from ngbkit.sweep.records import MEASURED

_WIDTH, _HEIGHT, _COLUMNS = 380, 280, 2
# Of a panel's axis of savings, with the space beside it.
_GAP = 60
_LEAST_S = 1e-3
_FOOT = 8


@provenance.traced
def break_even(data: Data, *, cache: Cache = "cold", ci: float | None = 0.95, **select: Any) -> alt.FacetChart:
    """Seconds to compile against milliseconds saved per call, one mark per trial, one panel per batch size.

    All marks on a diagonal break even after its number of calls (`ngbkit.metrics.break_even`). Trials that save
    nothing, and never pay off, are at the bottom.

    Parameters
    ----------
    data
        With `identity` and compile times.
    cache
        Use compile times with empty caches (``"cold"``) or with the caches of an earlier compilation (``"warm"``).
    ci, **select
        As for `throughput`.

    Raises
    ------
    MetricError
        There is no `identity`, or no compile times.
    UnknownNameError, UsageError
        As for `throughput`; or `cache` is invalid.
    """
    savings = partial(_compute_savings, cache=cache, ci=ci)
    frame, remarks = rows.drop_failed_compilers(rows.drop_baseline(rows.build_rows(data, savings, select)))
    with np.errstate(divide="ignore", invalid="ignore"):
        frame["calls"] = np.where(frame["value"] > 0, 1e3 * frame["seconds"] / frame["value"], np.inf)
    frame["panel"] = "batch " + frame["batch_size"].astype(int).astype(str)
    if frame["device"].nunique() > 1:
        frame["panel"] += " on " + frame["device"]
    panels = list(dict.fromkeys(frame["panel"]))
    trials = frame[frame["status"].isin(MEASURED) & frame["value"].notna()]
    paying = trials[trials["value"] > 0]
    if paying.empty:
        raise MetricError("no benefit to draw: no compiled trial is faster than identity. Select other trials.")
    look = marks.Look.of(frame)
    shape, omissions = marks.encode_networks(frame)
    scale = alt.Scale(type="log", nice=False, padding=24)
    x_axis, y_axis = (
        alt.Axis(values=_list_decades(part), format=".6~g") for part in (trials["seconds"], paying["value"])
    )
    x_title, y_title = f"seconds to compile, {cache} cache", "ms saved per call"
    x = alt.X("seconds:Q", title=x_title, axis=x_axis, scale=alt.Scale(type="log", nice=False, padding=14))
    y = alt.Y("value:Q", title=y_title, axis=y_axis, scale=scale)
    tooltip: list[Any] = ["network:N", "compiler:N", alt.Tooltip("batch_size:Q", title="batch size")]
    tooltip += [alt.Tooltip("seconds:Q", title="seconds to compile", format=".3~s")]
    tooltip += marks.build_number_tooltip(trials, {"value": "ms saved per call", "low": "low", "high": "high"})
    tooltip += [alt.Tooltip("calls:Q", title="calls to break even", format=",.0f"), "samples:Q"]
    diagonal = alt.Chart().transform_filter("datum.kind == 'diagonal'").encode(x, y, alt.Detail("label:N"))
    trial = alt.Chart().transform_filter("datum.kind == 'trial'").encode(x, look.encode_colour(symbol="circle"))
    shaped = trial.encode(shape)
    benefit = shaped.transform_filter("datum.value > 0")
    interval = trial.transform_filter("datum.value > 0 && datum.low > 0").mark_rule(opacity=0.45)
    layers = [
        diagonal.mark_line(color="#999999", strokeWidth=1),
        diagonal.transform_filter("datum.last")
        .mark_text(align="right", baseline="bottom", dx=-4, dy=-2, fontSize=10, color=theme.SUBTITLE)
        .encode(text="label:N"),
        interval.encode(alt.Y("low:Q", title=y_title, axis=y_axis, scale=scale), alt.Y2("high:Q")),
        *(points.encode(y, tooltip=tooltip) for points in marks.draw_points(benefit, trials, size=60, opacity=0.9)),
        shaped.transform_filter("datum.value <= 0")
        .mark_point(filled=True, size=60, opacity=0.8)
        .encode(y=alt.value(_HEIGHT - _FOOT), tooltip=tooltip),
    ]
    facet = alt.Facet("panel:N", title=None, sort=panels, header=lines.HEADER)
    points = marks.drop_conclusive(_concat_points(trials, _build_diagonals(paying, panels)))
    columns = min(_COLUMNS, len(panels))
    width = min(_WIDTH, lines.PAGE_WIDTH // columns - _GAP)
    chart = alt.layer(*layers, data=marks.inline(points), width=width, height=_HEIGHT)
    grid = chart.facet(facet=facet, columns=columns)
    remarks += [*omissions, *captions.describe_failures(frame)]
    if len(paying) < len(trials):
        remarks.append(f"{len(trials) - len(paying)} trials save nothing and never pay off: at the bottom")
    title = captions.build_title("Compile time and savings per call", data, frame, remarks, against=["compiler"], ci=ci)
    return lines.finish(grid, title)


def _compute_savings(node: xr.Dataset, cache: Cache, ci: float | None) -> xr.Dataset:
    """``value``, the milliseconds that a call saves, with its interval, and ``seconds``, the compile time."""
    metrics.break_even(node, cache=cache, unlike="mask")  # for its errors
    speedups = rows.wrap_metric(partial(metrics.speedup, unlike="mask"), ci)(node)
    rates = metrics.throughput(node)
    assert isinstance(rates, xr.DataArray)
    call = node["batch_size"] / rates.sel(compiler=BASELINE, drop=True)
    ends = [name for name in speedups.data_vars if name != "conclusive"]
    saved = {name: (1e3 * call * (1 - 1 / speedups[name])).transpose(*rates.dims) for name in ends}
    if "conclusive" in speedups:
        saved["conclusive"] = speedups["conclusive"]
    variable = "compile_time" if cache == "cold" else "compile_time_warm"
    times = node[variable].where(node[variable].notnull(), node["compile_time"])
    extra = (times - times.sel(compiler=BASELINE, drop=True)).clip(min=_LEAST_S).transpose(*rates.dims)
    return xr.Dataset({**saved, "seconds": extra})


def _list_decades(values: pd.Series[float]) -> list[float]:
    """The powers of ten that the values span, and one on either side."""
    low, high = (math.log10(value) for value in (values.min(), values.max()))
    return [10.0**power for power in range(math.floor(low) - 1, math.ceil(high) + 2)]


def _build_diagonals(paying: pd.DataFrame, panels: list[str]) -> pd.DataFrame:
    """The two ends of one line per decade of calls, within the range of the marks."""
    left, right = paying["seconds"].min() / 1.5, paying["seconds"].max() * 1.5
    low, high = paying["value"].min() / 1.5, paying["value"].max() * 1.5
    ends: list[dict[str, Any]] = []
    for power in range(10):
        calls = 10**power
        first, last = max(left, low / 1e3 * calls), min(right, high / 1e3 * calls)
        if first < last:
            for panel in panels:
                for seconds in (first, last):
                    end = {"panel": panel, "seconds": seconds, "value": 1e3 * seconds / calls, "last": seconds == last}
                    ends.append(end | {"label": f"{calls:,} calls" if calls > 1 else "1 call"})
    return pd.DataFrame(ends)


def _concat_points(trials: pd.DataFrame, diagonals: pd.DataFrame) -> pd.DataFrame:
    names = ["panel", "network", "compiler", "batch_size", "seconds", "value", "low", "high", "calls", "samples"]
    names += ["conclusive"]
    parts = [trials[names].assign(kind="trial", last=False), diagonals.assign(kind="diagonal", conclusive=True)]
    return pd.concat(parts, ignore_index=True).astype({"last": bool, "conclusive": bool}).replace([np.inf], np.nan)
