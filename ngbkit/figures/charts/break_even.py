"""Compile time against what it buys, and when it has paid."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ngbkit import metrics
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError
from ngbkit.figures import captions, lines, marks, provenance, rows
from ngbkit.metrics.economy import Cache
from ngbkit.sweep.trials import BASELINE

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

_WIDTH, _HEIGHT = 380, 280
_LEAST_S = 1e-3
_FOOT, _STEP = 8, 13


@provenance.traced
def break_even(data: Data, *, cache: Cache = "cold", ci: float | None = 0.95, **select: Any) -> alt.FacetChart:
    """Seconds that compiling takes against what each call saves, a mark a trial, a panel a batch size.

    On a diagonal all marks break even after as many calls as it says (`ngbkit.metrics.break_even`). What saves nothing,
    and so never pays, lies at the foot.

    Parameters
    ----------
    data
        With `identity` and compile times.
    cache
        Whether caches are empty (``"cold"``), or hold what an earlier compilation left (``"warm"``).
    ci, **select
        As for `throughput`.

    Raises
    ------
    MetricError
        There is no `identity`, or no compile times.
    UnknownNameError, UsageError
        As for `throughput`; `cache` is neither of the two.
    """
    import altair as alt

    def values(node: xr.Dataset) -> xr.Dataset:
        return _values(node, cache, ci)

    frame, silent = rows.heard(rows.without_baseline(rows.rows(data, values, select)))
    frame["calls"] = _calls(frame)
    several = frame["device"].nunique() > 1
    where = " on " + frame["device"] if several else ""
    frame["panel"] = "batch " + frame["batch_size"].astype(int).astype(str) + where
    panels = list(dict.fromkeys(frame["panel"]))
    there = frame[frame["status"].eq("ok") & frame["value"].notna()].copy()
    there["pays"] = there["value"] > 0
    paying = there[there["pays"]]
    if paying.empty:
        raise MetricError("nothing that was compiled is faster than identity, so that there is no benefit to draw.")
    look = marks.Look.of(frame)
    scale = alt.Scale(type="log", nice=False, padding=24)
    x_axis, y_axis = (alt.Axis(values=_decades(part), format="~g") for part in (there["seconds"], paying["value"]))
    x_title, y_title = f"seconds to compile, {cache} cache", "ms saved by each call"
    x = alt.X("seconds:Q", title=x_title, axis=x_axis, scale=alt.Scale(type="log", nice=False, padding=14))
    y = alt.Y("value:Q", title=y_title, axis=y_axis, scale=scale)
    told: list[Any] = ["network:N", "compiler:N", "batch_size:Q", alt.Tooltip("seconds:Q", format=".3~s")]
    told += [alt.Tooltip(f"{name}:Q", format=".3~g") for name in ("value", "low", "high")]
    told += [alt.Tooltip("calls:Q", title="calls until it has paid", format=",.0f"), "samples:Q"]
    ends = _diagonals(paying, panels)
    diagonal = alt.Chart().transform_filter("datum.kind == 'diagonal'").encode(x, y, alt.Detail("label:N"))
    marked = alt.Chart().transform_filter("datum.kind == 'trial'").encode(x, look.colour(symbol="circle"))
    pays = marked.transform_filter("datum.value > 0")
    spread = pays.transform_filter("datum.low > 0").mark_rule(opacity=0.45)
    layers = [
        diagonal.mark_line(color="#BBBBBB", strokeWidth=1),
        diagonal.transform_filter("datum.last")
        .mark_text(align="right", baseline="bottom", dx=-4, dy=-2, fontSize=10, color="#888888")
        .encode(text="label:N"),
        spread.encode(alt.Y("low:Q", title=y_title, axis=y_axis, scale=scale), alt.Y2("high:Q")),
        pays.mark_circle(size=60, opacity=0.9).encode(y, tooltip=told),
        marked.transform_filter("datum.value <= 0")
        .mark_point(shape="triangle-down", filled=True, size=60, opacity=0.8)
        .encode(y=alt.value(_HEIGHT - _FOOT), tooltip=told),
    ]
    drawn = _joined(there, ends)
    facet = alt.Facet("panel:N", title=None, sort=panels, header=lines.HEADER)
    chart = alt.layer(*layers, data=marks.inline(drawn), width=_WIDTH, height=_HEIGHT)
    grid = chart.facet(facet=facet, columns=min(2, len(panels)))
    remarks = [*silent, *captions.failures(frame)]
    never = int((~there["pays"]).sum())
    if never:
        remarks.append(f"{never} trials save nothing and never pay: triangles at the foot")
    title = captions.title("What compiling costs, and what it saves", data, frame, remarks, against=["compiler"])
    return lines.finished(grid, title)


def _values(node: xr.Dataset, cache: Cache, ci: float | None) -> xr.Dataset:
    """``value``, the milliseconds that a call saves, with its interval, and ``seconds``, those of compiling."""
    metrics.break_even(node, cache=cache, unlike="mask")  # which says what lacks
    gains = rows.of_metric(lambda one, ci: metrics.speedup(one, ci=ci, unlike="mask"), ci)(node)
    rates = metrics.throughput(node)
    assert isinstance(rates, xr.DataArray)
    call = node["batch_size"] / rates.sel(compiler=BASELINE, drop=True)
    saved = {name: (1e3 * call * (1 - 1 / gains[name])).transpose(*rates.dims) for name in gains.data_vars}
    name = "compile_time" if cache == "cold" else "compile_time_warm"
    times = node[name].where(node[name].notnull(), node["compile_time"])
    more = (times - times.sel(compiler=BASELINE, drop=True)).clip(min=_LEAST_S).transpose(*rates.dims)
    return xr.Dataset({**saved, "seconds": more})


def _decades(values: pd.Series[float]) -> list[float]:
    """The powers of ten that the values span, and one on either side."""
    low, high = (math.log10(value) for value in (values.min(), values.max()))
    return [10.0**power for power in range(math.floor(low) - 1, math.ceil(high) + 2)]


def _calls(frame: pd.DataFrame) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(frame["value"] > 0, 1e3 * frame["seconds"] / frame["value"], np.inf)


def _diagonals(paying: pd.DataFrame, panels: list[str]) -> pd.DataFrame:
    """Two ends of a line a decade of calls, inside what the marks span."""
    import pandas as pd

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


def _joined(there: pd.DataFrame, ends: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    kept = ["panel", "network", "compiler", "batch_size", "seconds", "value", "low", "high", "calls", "samples"]
    both = pd.concat([there[kept].assign(kind="trial", last=False), ends.assign(kind="diagonal")], ignore_index=True)
    return both.astype({"last": bool}).replace([np.inf], np.nan)
