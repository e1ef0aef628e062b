"""Time against answers: what a lower precision gains, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import xarray as xr

from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import MetricError, UnknownNameError
from ngbkit.figures import captions, lines, marks, provenance, rows, theme
from ngbkit.metrics import acceptance
from ngbkit.metrics.metric import Metric, load_metrics
from ngbkit.metrics.scaling import THROUGHPUT
from ngbkit.sweep.column import Column
from ngbkit.sweep.low_precision import COSTS

_WIDTHS, _HEIGHT, _GAP, _ROW_GAP = (420, 320, 200), 200, 64, 74
_FRONT = "#8C8C8C"
_PREFERRED = ("accuracy", "agreement", "sqnr", "relative_error")
_FORMATS = {"accuracy": ".4~%", "agreement": ".4~%", "sqnr": "~r", "relative_error": ".2~%"}


@provenance.traced
def tradeoff(data: Data, *, cost: str = "", accept: str | Iterable[str] = (), **select: Any) -> alt.FacetChart:
    """The time of a call against the answers, with a panel per network and a mark per compiler and precision.

    The wide grey line is the front: nothing else is as good in less time. Bars are 95 % intervals of both. Hollow marks
    are none to choose: their cost is not accepted, nothing judged it, or the machine was too busy; a column that was
    refused before it was timed has its mark on the right edge.

    Parameters
    ----------
    data
        With samples that judge, labelled (`evaluate`) or not (`calibrate`).
    cost
        The answers: ``"accuracy"``, ``"agreement"``, ``"sqnr"`` or ``"relative_error"``. Default: the first of these
        that the dataset has.
    accept
        Bounds on the cost of lower precisions, ``"agreement>=0.99"``, in place of those of the sweep.
    **select
        As for `throughput`.

    Raises
    ------
    MetricError
        The dataset has no samples that judge, or no cost of that name.
    UnknownNameError, UsageError
        As for `throughput`; or a bound is invalid.
    """
    metric = _choose_cost(data, cost)
    judged = acceptance.accept(data, accept) if accept else data
    frame = rows.split_batch_sizes(rows.build_rows(judged, partial(_compute_costs, metric=metric), select))
    frame = frame[frame["value"].notna()].reset_index(drop=True)
    frame = _name_columns(frame)
    panels = list(dict.fromkeys(frame["network"]))
    remarks = lines.describe_omitted(panels)
    frame = frame[frame["network"].isin(panels[: lines.PANELS])].reset_index(drop=True)
    columns = min(len(_WIDTHS), len(panels))
    width = _WIDTHS[columns - 1]
    look = marks.Look.of(frame)
    x_scale = alt.Scale(zero=False, nice=True, padding=14)
    x_axis = alt.Axis(tickCount=5, labelExpr=lines.NUMBER, labelOverlap="greedy", labelSeparation=6, grid=False)
    x, x_low = (
        alt.X(f"{name}:Q", title="time of a call (ms)", scale=x_scale, axis=x_axis) for name in ("ms", "ms_low")
    )
    title = (metric.symbol or metric.name.replace("_", " ")) + metric.unit_suffix
    y_axis = alt.Axis(tickCount=5, format=_FORMATS[metric.name])
    y, y_low = (
        alt.Y(f"{name}:Q", title=title, scale=alt.Scale(zero=False, nice=True, padding=8), axis=y_axis)
        for name in ("value", "low")
    )
    area = (columns * (width + _GAP), -(-len(panels) // columns) * (_HEIGHT + _ROW_GAP))
    colour = look.encode_colour(area=area, symbol="circle")
    precisions = list(dict.fromkeys(frame["precision"]))
    shapes = alt.Scale(domain=precisions, range=theme.assign_shapes(precisions))
    tooltip: list[Any] = ["network:N", "column:N", alt.Tooltip("batch_size:Q", title="batch size")]
    tooltip += marks.build_number_tooltip(
        frame,
        {
            **{"value": metric.name.replace("_", " "), "low": "low", "high": "high"},
            **{"ms": "ms", "ms_low": "low (ms)", "ms_high": "high (ms)", "samples": "evaluated samples"},
        },
    )
    tooltip += ["error:N"] if (frame["error"].fillna("") != "").any() else []
    trial = alt.Chart().transform_filter("datum.kind == 'trial'").encode(colour)
    shape = alt.Shape("precision:N", scale=shapes, title="precision")
    points = trial.encode(shape)
    front = alt.Chart().transform_filter("datum.kind == 'front'").encode(x, y)
    layers = [
        front.mark_line(interpolate="step-after", strokeWidth=7, opacity=0.35, color=_FRONT),
        trial.mark_rule(strokeWidth=1.2, opacity=0.5).encode(x_low, y, alt.X2("ms_high:Q")),
        trial.mark_rule(strokeWidth=1.2, opacity=0.5).encode(x, y_low, alt.Y2("high:Q")),
        *(part.encode(x, y, tooltip=tooltip) for part in marks.draw_points(points, frame, size=64)),
    ]
    is_refused = frame["status"] == acceptance.REFUSED
    if (is_refused & frame["ms"].notna()).any():
        crossed = alt.Chart().transform_filter("datum.kind == 'trial' && datum.refused")
        layers.append(crossed.mark_text(text="✕", fontSize=9, color=marks.REASON_COLOUR).encode(x, y))
    if frame["ms"].isna().any():
        untimed = alt.Chart().transform_filter("datum.kind == 'untimed'").encode(colour, shape)
        mark = untimed.mark_point(size=64, fill=theme.BACKGROUND, opacity=1)
        layers.append(mark.encode(y, x=alt.value(width), tooltip=tooltip))
    layers.append(marks.draw_titles("network", panels, width + _GAP - 10))
    chart = alt.layer(*layers, data=marks.inline(_concat_points(frame, metric)), width=width, height=_HEIGHT)
    facet = alt.Facet("network:N", title=None, sort=panels, header=lines.NO_HEADER)
    spacing = {"row": _ROW_GAP, "column": _GAP}
    grid: alt.FacetChart = chart.facet(facet=facet, columns=columns, bounds="flush", spacing=spacing)
    grid = grid.resolve_scale(x="independent", y="independent").resolve_axis(x="independent", y="independent")
    remarks = [*_describe(frame), *remarks]
    text = f"{metric.long_name[0].upper()}{metric.long_name[1:]} against the time of a call"
    title_of_chart = captions.build_title(text, data, frame, remarks, ci=LEVEL, evaluated=True)
    return lines.finish(grid, title_of_chart)


def _choose_cost(data: Data, cost: str) -> Metric:
    """Choose the metric of answers: the given one, or the first that the dataset has."""
    metrics = {name: load_metrics()[name] for name in _PREFERRED}
    if cost:
        if cost not in metrics:
            raise UnknownNameError("cost", cost, COSTS)
        return metrics[cost]
    present = [name for name, metric in metrics.items() if metric.is_in(data)]
    if not present:
        raise MetricError(
            "tradeoff() needs samples that judge a precision, which this dataset lacks. Measure with evaluate=FILE, or "
            "calibrate=FILE without labels."
        )
    return metrics[present[0]]


def _compute_costs(node: xr.Dataset, metric: Metric) -> xr.Dataset:
    """Compute the cost with its interval, and the time of a call in milliseconds with its own."""
    costs, rates = metric(node, ci=LEVEL), THROUGHPUT(node, ci=LEVEL)
    seconds = {name: 1e3 * node["batch_size"] / rates[rate] for name, rate in _TIMES.items()}
    return xr.Dataset(
        {
            **{"value": costs[metric.name], "low": costs["ci_low"], "high": costs["ci_high"]},
            **{name: values.transpose(*node["status"].dims) for name, values in seconds.items()},
            "conclusive": rates["conclusive"],
            "samples": node["evaluated_samples"],
            "contract": node["contract"],
        }
    )


_TIMES = {"ms": "throughput", "ms_low": "ci_high", "ms_high": "ci_low"}


def _name_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Name the runtime and the precision of each row, and mark those that are none to choose as not conclusive."""
    columns = [Column.read(label) for label in frame["compiler"]]
    return frame.assign(
        column=frame["compiler"],
        compiler=[column.base.label for column in columns],
        precision=[column.precision or "f32" for column in columns],
        conclusive=frame["conclusive"].astype(bool) & (frame["status"] == "ok"),
    )


def _concat_points(frame: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    """The trials that were timed, those that were not, and the front of each network."""
    kinds = np.where(frame["ms"].notna(), "trial", "untimed")
    names = ["network", "column", "compiler", "precision", "batch_size", "value", "low", "high", "ms", "ms_low"]
    errors = frame["error"].fillna("").replace("", "none")
    points = frame[[*names, "ms_high", "conclusive", "samples"]].assign(error=errors, kind=kinds)
    points["refused"] = (frame["status"] == acceptance.REFUSED).astype(int)
    sign = -1 if metric.name == "relative_error" else 1
    chosen = frame[(frame["status"] == "ok") & frame["ms"].notna()]
    columns = ["network", "value", "ms", "kind", "conclusive"]
    fronts = [rows.find_front(members, sign)[columns] for _, members in chosen.groupby("network", sort=False)]
    table: pd.DataFrame = pd.concat([points, *fronts], ignore_index=True)
    return table.astype({"conclusive": bool})


def _describe(frame: pd.DataFrame) -> list[str]:
    """Explain the front and the hollow marks."""
    remarks = ["wide grey line: the front; nothing else is as good in less time"]
    refused = frame[frame["status"] == acceptance.REFUSED]
    if len(refused):
        names = ", ".join(dict.fromkeys(refused["column"]))
        edge = " (on the right edge: not timed)" if refused["ms"].isna().any() else ""
        remarks.append(f"crossed or hollow: the cost of {names} is not accepted{edge}")
    return remarks
