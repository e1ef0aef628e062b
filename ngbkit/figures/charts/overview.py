"""The overview of a run: throughput by batch size or a factor, one row per network, with the speed-up beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt
import numpy as np
import pandas as pd
import xarray as xr

from ngbkit.dataset.assembly import factor_dims, nodes
from ngbkit.dataset.long_form import list_labels
from ngbkit.dataset.storage import Data
from ngbkit.figures import captions, lines, marks, provenance, rows, theme
from ngbkit.metrics import contracts
from ngbkit.metrics.estimate import Estimate
from ngbkit.metrics.frames import to_dataframe
from ngbkit.sweep.records import MEASURED

NETWORKS = 16
"""The largest number of rows of a figure; the paper has fifteen networks."""

_MOST_IN_COLUMN = 5
_WIDTH = 270
# Of the axis of a panel with the space beside it, and of a letter of the number beside a bar, in pixels.
_GAP, _NUMBER_LETTER = 76, 5.6

_TITLES = {"throughput": "throughput (samples/s)", "speedup": "speed-up over identity"}


@provenance.traced
def overview(data: Data) -> alt.ConcatChart:
    """Throughput by batch size, one line per compiler, one row per network and device, with the speed-up beside it.

    With one batch size, lines run over the factor with the most numbers, or become bars without such a factor. Only the
    smallest and the largest value of each other factor with numbers are drawn, and the subtitle says so. A failed trial
    is a mark at the bottom of its panel, whose shape shows its status. Every value has its 95 % interval; one that is
    not conclusive (see `ngbkit.dataset.contention.conclusive`) is hollow, or a pale bar.

    Parameters
    ----------
    data
        The dataset or tree of a run.

    Returns
    -------
    altair.ConcatChart
        It embeds its data and needs no network.
    """
    x = _choose_axis(data)
    frame = _build_frame(data, x)
    networks = list(dict.fromkeys(frame["network"]))
    trials = frame[frame["network"].isin(networks[:NETWORKS])]
    look = _Look.of_trials(trials, x)
    panels = [_draw_row(look, part) for _, part in trials.groupby("network", sort=False)]
    remarks = _list_remarks(data, frame, networks[NETWORKS:], look)
    title = captions.build_title("Throughput and speed-up", data, frame, remarks, against=["compiler"], absolute=True)
    return lines.finish(alt.concat(*panels, columns=look.columns, spacing={"row": 28, "column": 20}), title)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look(marks.Look):
    """The encodings and axes that all panels of a figure share."""

    x: str  # a column, along which lines run; empty for bars
    figures: list[str]
    columns: int

    @property
    def width(self) -> int:
        """The width of a panel, such that all columns fit on a page."""
        return min(_WIDTH, lines.PAGE_WIDTH // (self.columns * len(self.figures)) - _GAP)

    @classmethod
    def of_trials(cls, frame: pd.DataFrame, x: str) -> _Look:
        look = marks.Look.of(frame)
        figures = [name for name in _TITLES if frame[name].notna().any()] or ["throughput"]
        return cls(
            labels=look.labels,
            statuses=look.statuses,
            x=x,
            figures=figures,
            columns=1 if frame["network"].nunique() < _MOST_IN_COLUMN else 2,
        )


def _draw_row(look: _Look, frame: pd.DataFrame) -> alt.HConcatChart:
    draw = _draw_lines if look.x else _draw_bars
    first, *others = (draw(look, frame, figure) for figure in look.figures)
    title = marks.draw_titles("network", frame["network"].unique(), look.width * len(look.figures))
    title.data = marks.inline(frame[["network"]].head(1))
    first.layer = [*first.layer, title]
    # Panels are aligned by their own edges, however wide the title of a row is.
    return alt.hconcat(first, *others, spacing=66, bounds="flush")


def _draw_lines(look: _Look, frame: pd.DataFrame, figure: str) -> alt.LayerChart:
    certainty = {name: frame[f"{figure}_{name}"] for name in ("low", "high", "conclusive")}
    points = frame.assign(value=frame[figure].where(np.isfinite(frame[figure])), **certainty)
    return lines.draw_panel(lines.Lines(frame=points, x=look.x, value=_TITLES[figure], height=180), look, look.width)


def _draw_bars(look: _Look, frame: pd.DataFrame, figure: str) -> alt.LayerChart:
    points = _build_points(frame, figure)
    most = float(points[["value", "high"]].to_numpy(float, na_value=0.0).max(initial=0.0))
    # The longest bar leaves space for the number beside it, so that panels are aligned.
    bar_width = max(look.width / 3, look.width - _NUMBER_LETTER * (points["text"].str.len().max() + 2))
    domain = (0.0, most * look.width / bar_width if most > 0 else 1.0)
    axis, scale = alt.Axis(tickCount=5, format="~s", labelBound=True), alt.Scale(domain=domain, nice=False)
    x, low, end = (
        alt.X(f"{name}:Q", title=_TITLES[figure], axis=axis, scale=scale) for name in ("value", "low", "end")
    )
    ends = "isValid(datum.high) ? max(datum.value, datum.high) : datum.value"
    # Only the first figure has names.
    names = marks.build_name_axis(
        look.labels if figure == look.figures[0] else [], 220, labels=figure == look.figures[0], domain=False
    )
    y = alt.Y("compiler:N", title=None, sort=look.labels, axis=names)
    base = alt.Chart(marks.inline(points)).encode(x, y)
    value = alt.Tooltip("text:N", title=_TITLES[figure])
    measured, missing = base.transform_filter("isValid(datum.value)"), base.transform_filter("!isValid(datum.value)")
    bars = measured.mark_bar(height=13).encode(
        look.encode_colour().legend(None),
        tooltip=[*_LABELS, value],
        opacity=alt.condition("datum.conclusive", alt.value(1.0), alt.value(0.35)),
    )
    intervals = measured.mark_rule(strokeWidth=1.5, color=theme.TITLE).encode(low, alt.X2("high:Q"))
    numbers = (
        measured.transform_calculate(end=ends)
        .mark_text(align="left", dx=4, fontSize=10, color=theme.TITLE)
        .encode(end, text="text:N")
    )
    reasons = marks.draw_reasons(missing, frame, "why", [*_LABELS, "status:N"], dx=4).encode(x=alt.datum(0))
    return alt.LayerChart(layer=[bars, intervals, numbers, reasons], width=look.width, height=alt.Step(20))


_LABELS = ["network:N", "compiler:N"]
_COLUMNS = ["network", "compiler", "batch_size", "status", "error"]


def _build_points(frame: pd.DataFrame, figure: str) -> pd.DataFrame:
    """One row per trial, including those without a value, with the text beside its bar."""
    certainty = {name: frame[f"{figure}_{name}"] for name in ("low", "high", "conclusive")}
    points = frame[_COLUMNS].assign(value=frame[figure].where(np.isfinite(frame[figure])), **certainty)
    columns = zip(points["value"], points["low"], points["high"], points["conclusive"], strict=True)
    points["text"] = [str(Estimate(*values)) for values in columns]
    uncompared = points["status"].isin(MEASURED) & points["value"].isna()
    return points.assign(why=points["status"].mask(uncompared, "not compared"))


def _choose_axis(data: Data) -> str:
    """Choose the column along which lines run: the batch size, or the factor with the most numbers if there is one."""
    parts = list(nodes(data).values())
    if len({size for node in parts for size in node["batch_size"].values}) > 1:
        return "batch_size"
    factors = set.intersection(*(set(_list_numeric_factors(node)) for node in parts))
    levels = {name: len({value for node in parts for value in node[name].values}) for name in sorted(factors)}
    return max((name for name in levels if levels[name] > 1), key=levels.__getitem__, default="")


def _build_frame(data: Data, x: str) -> pd.DataFrame:
    """The trials to draw, with the names of their networks."""
    with_device = len(list_labels(data, "device")) > 1
    frames = []
    for node in nodes(data).values():
        table = to_dataframe(_select_extremes(node, x)).drop(columns="samples")
        table["conclusive"] = table["throughput_conclusive"]
        table["network"] = rows.name_networks(table, [name for name in factor_dims(node) if name != x], with_device)
        frames.append(table)
    return pd.concat(frames, ignore_index=True)


def _select_extremes(node: xr.Dataset, x: str) -> xr.Dataset:
    for dim in _list_reduced(node, x):
        values = node[dim].values
        node = node.isel({dim: sorted({int(values.argmin()), int(values.argmax())})})
    return node


def _list_numeric_factors(node: xr.Dataset) -> list[str]:
    """List the factors with an order; all values of the others are drawn."""
    return [dim for dim in factor_dims(node) if node[dim].dtype.kind != "O"]


def _list_reduced(node: xr.Dataset, x: str) -> list[str]:
    """List the factors of which only the extremes are drawn."""
    return [dim for dim in _list_numeric_factors(node) if dim != x and node.sizes[dim] > 2]


def _list_remarks(data: Data, frame: pd.DataFrame, omitted: Sequence[str], look: _Look) -> list[str]:
    """The remarks of this figure, one per line."""
    remarks = []
    batch_sizes = set(frame["batch_size"])
    if frame[[f"{name}_low" for name in _TITLES]].notna().any(axis=None):
        remarks.append(f"{'bars' if look.x else 'strokes'}: 95 % intervals")
    if len(batch_sizes) == 1:
        remarks.append(f"batch size {batch_sizes.pop()}")
    every = nodes(data).values()
    reduced = dict.fromkeys(dim for node in every for dim in _list_reduced(node, look.x))
    if reduced:
        remarks.append(f"only the smallest and the largest {' and '.join(reduced)} are drawn")
    if omitted:
        remarks.append(f"{len(omitted)} more networks are not drawn, starting with {omitted[0]}")
    if not frame["speedup"].notna().any() and not contracts.list_uncompared(data):
        remarks.append("no speed-up: there is no identity to compare with")
    return remarks
