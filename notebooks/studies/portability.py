"""The study of portability as a table and a figure: the speed-up of each network by cost model and runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ngbkit.figures import lines, marks, provenance, theme

if TYPE_CHECKING:
    import altair as alt
    import xarray as xr

MEASURED = "measured on {}"
"""The name of the cost model that is measurement itself: of all candidates of all cost models the fastest on a runtime,
or the original."""

NOISE = 0.02
"""A speed-up within this of 1 is neither a gain nor a regression."""

_WIDTH, _STEP = 260, 26
_VERDICTS = ("surely faster", "not sure", "surely slower")
_COLOURS = ("#0072B2", "#999999", "#D55E00")
# The ticks of speed-ups, of which the axis has those in its range.
_TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.7, 2.0, 3.0, 5.0, 10.0)


def summarise(data: xr.Dataset) -> pd.DataFrame:
    """Tabulate the scores of each cost model on each runtime, unguarded and guarded.

    Returns
    -------
    pandas.DataFrame
        A row per cost model and runtime: ``networks``; ``speedup``, the geometric mean; ``error``, the standard error
        of its logarithm over the networks (NaN of one); ``regressions``, the share of networks that are slower,
        significantly and by more than `NOISE`; ``worst``; ``regret``, the mean share by which it is behind the best
        measured candidate on that runtime; and ``gain``, its share of that candidate's gain, in logarithms. Then the
        same of the guarded choice: ``guarded_speedup``, ``guarded_error``, ``guarded_regressions``, ``guarded_worst``,
        ``guarded_regret``, ``guarded_gain``.
    """
    rows = []
    for compiler in data["compiler"].values.tolist():
        best = data["speedup"].sel(compiler=compiler, cost=MEASURED.format(compiler)).values
        for cost in data["cost"].values.tolist():
            selected = data.sel(compiler=compiler, cost=cost)
            first = _score(selected["speedup"].values, selected["high"].values, best)
            guarded_scores = _score(selected["guarded"].values, selected["guarded_high"].values, best)
            networks = int(np.isfinite(selected["speedup"].values).sum())
            guarded_columns = {f"guarded_{name}": value for name, value in guarded_scores.items()}
            rows.append({"cost": cost, "compiler": compiler, "networks": networks, **first, **guarded_columns})
    return pd.DataFrame(rows).set_index(["cost", "compiler"])


def _score(values: np.ndarray, high: np.ndarray, best: np.ndarray) -> dict[str, float]:
    finite = np.isfinite(values)
    if not finite.any():
        return dict.fromkeys(("speedup", "error", "regressions", "worst", "regret", "gain"), np.nan)
    values, high, best = values[finite], high[finite], best[finite]
    best_gain = float(np.log(best).sum())
    mean, error = compute_mean(values)
    return {
        "speedup": mean,
        "error": error,
        "regressions": float(np.mean((high < 1) & (values < 1 - NOISE))),
        "worst": float(values.min()),
        "regret": float(np.mean(1 - values / best)),
        "gain": float(np.log(values).sum()) / best_gain if best_gain > 0 else np.nan,
    }


def compute_mean(values: np.ndarray) -> tuple[float, float]:
    """Return the geometric mean of speed-ups, and the standard error of its logarithm; NaN of a single one."""
    logs = np.log(values)
    error = float(logs.std(ddof=1) / np.sqrt(len(logs))) if len(logs) > 1 else float("nan")
    return float(np.exp(logs.mean())), error


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
