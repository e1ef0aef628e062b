"""Every sample of every trial: latency distributions, and latency round by round, which shows disturbances."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.contention import conclusive, find_uncontended
from ngbkit.dataset.long_form import list_labels, list_trial_dims
from ngbkit.dataset.selection import Select
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError
from ngbkit.figures import captions, lines, marks, provenance, rows, theme

_WIDTH, _LINE = 250, 24
_QUANTILES = {"p5": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95}
_COLUMNS, _TRACE_HEIGHT, _GAP = 3, 150, 74
_TRACE_WIDTH = lines.PAGE_WIDTH // _COLUMNS - _GAP


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
    trials, remarks = _build_panels(data, select)
    timed = _extract_samples(data, trials)
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
    names = ["panel", "network", "compiler", "batch_size", "status", "error", *_QUANTILES]
    strokes = timed[["panel", "compiler", "ms"]].assign(kind=np.where(timed["used"], "sample", "unused"))
    return pd.concat([quantiles[names].assign(kind="trial"), strokes], ignore_index=True)


@provenance.traced
def traces(data: Data, **select: Any) -> alt.FacetChart:
    """Latency round by round, one panel per network and batch size, one line per compiler.

    The compilers of a group are interleaved in rounds: where all lines rise together, the machine has changed, and
    ratios taken round by round have not. Each line is relative to its own median. Contended rounds are shaded.

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
    trials, remarks = _build_panels(data, select)
    panels = list(dict.fromkeys(trials["panel"]))
    frame = _compute_rounds(_extract_samples(data, trials))
    look = marks.Look.of(trials)
    x = alt.X("round:Q", title="round", axis=alt.Axis(tickMinStep=1, grid=False, format="d"))
    y = alt.Y("relative:Q", title="latency over its median", scale=alt.Scale(zero=False, padding=8))
    base = alt.Chart().encode(x, look.encode_colour())
    times = {"ms": "latency (ms)", "relative": "latency over its median"}
    tooltip = ["compiler:N", "round:Q", *marks.build_number_tooltip(frame, times)]
    contended = alt.Chart().transform_filter("datum.contended").mark_rule(color="#E69F00", opacity=0.25, strokeWidth=4)
    layers = [
        contended.encode(x),
        alt.Chart().mark_rule(color="#999999", strokeDash=[2, 2]).encode(y=alt.datum(1)),
        base.mark_line(strokeWidth=1.5).encode(y, look.encode_dash()),
        base.mark_circle(size=16, opacity=1).encode(y, tooltip=tooltip),
    ]
    layers.append(marks.draw_titles("panel", panels, _TRACE_WIDTH + _GAP - 10))
    facet = alt.Facet("panel:N", title=None, sort=panels, header=lines.NO_HEADER)
    chart = alt.layer(*layers, data=marks.inline(frame), width=_TRACE_WIDTH, height=_TRACE_HEIGHT)
    grid: alt.FacetChart = chart.facet(
        facet=facet, columns=min(_COLUMNS, len(panels)), bounds="flush", spacing={"row": 74, "column": _GAP}
    )
    grid = grid.resolve_scale(y="independent", x="independent").resolve_axis(x="independent")
    if frame["contended"].any():
        remarks.append("shaded: contended rounds")
    remarks += captions.describe_failures(trials)
    return lines.finish(grid, captions.build_title("Latency round by round", data, trials, remarks))


def _compute_rounds(timed: pd.DataFrame) -> pd.DataFrame:
    """The median of each round, and its ratio to the median of the trial."""
    groups = timed.groupby(["panel", "compiler", "round"], sort=False)
    rounds = groups.agg(ms=("ms", "median"), contended=("contended", "any")).reset_index()
    medians = rounds.groupby(["panel", "compiler"], sort=False)["ms"].transform("median")
    # Rounds are counted from 0 in each panel: a merged dataset numbers those of each run from another million.
    rounds["round"] = rounds.groupby("panel", sort=False)["round"].rank("dense").astype(int) - 1
    return rounds.assign(relative=rounds["ms"] / medians).sort_values(["panel", "compiler", "round"], ignore_index=True)


def _count_samples(node: xr.Dataset) -> xr.Dataset:
    """Count the samples of each trial, and mark conclusive and uncontended ones, as `ngbkit.figures.rows.Values`."""
    if "latency" not in node or not node["latency"].notnull().any():
        raise MetricError("this figure draws samples, which this dataset lacks. Use the dataset of the run.")
    count = node["latency"].notnull().sum("repeat")
    return xr.Dataset({"value": count, "conclusive": conclusive(node), "uncontended": find_uncontended(node)})


def _build_panels(data: Data, select: Select) -> tuple[pd.DataFrame, list[str]]:
    """The trials to draw, with the column ``panel``, a network at a batch size; and remarks on omitted ones."""
    trials, remarks = rows.drop_failed_compilers(rows.build_rows(data, _count_samples, select))
    trials["panel"] = rows.split_batch_sizes(trials)["network"]
    panels = list(dict.fromkeys(trials["panel"]))
    remarks += lines.describe_omitted(panels)
    return trials[trials["panel"].isin(panels[: lines.PANELS])], remarks


def _extract_samples(data: Data, trials: pd.DataFrame) -> pd.DataFrame:
    """The samples of `trials`, one per row, in measured order; ``used`` is whether estimates use it."""
    frames = []
    for key, row in zip(trials.index.tolist(), trials.to_dict("records"), strict=True):
        node = next(
            node
            for node in nodes(data).values()
            if all(row[dim] in list_labels(node, dim) for dim in list_trial_dims(node) if dim in row)
        )
        trial = node.sel({dim: row[dim] for dim in list_trial_dims(node) if dim in node.dims})
        latency = trial["latency"].values
        present = ~np.isnan(latency)
        columns = {
            "ms": latency * 1e3,
            "round": trial["round"].values if "round" in trial else np.arange(len(latency)),
            "contended": trial["contended"].values > 0 if "contended" in trial else np.zeros(len(latency), dtype=bool),
        }
        samples = pd.DataFrame({name: values[present] for name, values in columns.items()})
        samples["used"] = ~samples["contended"] | (not row["uncontended"])
        frames.append(samples.assign(trial=key, panel=row["panel"], compiler=row["compiler"]))
    return pd.concat(frames, ignore_index=True)
