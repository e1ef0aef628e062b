"""The first figure of a run: throughput by batch size, a row a network, with the speed-up beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from ngbkit.dataset import factor_dims, nodes
from ngbkit.figures import theme
from ngbkit.metrics import contracts
from ngbkit.storage import Data
from ngbkit.tables import trial_table

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

NETWORKS = 16
"""Rows of one figure, at most; the paper has fifteen networks."""

LOG_FROM = 50
"""Values of one panel that differ by more than this factor are drawn on a logarithmic axis."""

_TITLES = {"throughput": "throughput (samples/s)", "speedup": "speed-up over identity"}


def overview(data: Data) -> alt.ConcatChart:
    """Throughput by batch size, one line a compiler, one row a network and device, with the speed-up beside it.

    Of networks with factors, those with the smallest and the largest value of each are drawn, and the subtitle says so.
    A trial that failed is drawn at the foot of its panel, in a shape that tells how. With one batch size, lines become
    bars.

    Parameters
    ----------
    data
        What `ngbkit.dataset.assemble` gave.

    Returns
    -------
    altair.ConcatChart
        Its data is inside it: it needs neither the dataset nor a network.
    """
    import altair as alt

    frame = _frame(data)
    networks = list(dict.fromkeys(frame["network"]))
    drawn = frame[frame["network"].isin(networks[:NETWORKS])]
    look = _Look.of(drawn)
    rows = [_row(look, str(name), part) for name, part in drawn.groupby("network", sort=False)]
    subtitle = [_provenance(data), *_remarks(data, frame, networks[NETWORKS:])]
    title = alt.TitleParams("Throughput and speed-up", subtitle=subtitle, fontSize=16, offset=16)
    chart = alt.concat(*rows, columns=1 if len(rows) < 5 else 2, spacing=28, title=title)
    chart.config = theme.CONFIG
    return chart


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What all panels of a figure share."""

    compilers: list[str]
    batch_sizes: list[int]
    statuses: list[str]
    figures: list[str]
    logarithmic: dict[str, bool]

    @classmethod
    def of(cls, frame: pd.DataFrame) -> _Look:
        figures = [name for name in _TITLES if frame[name].notna().any()] or ["throughput"]
        parts = [part for _, part in frame.groupby("network", sort=False)]
        return cls(
            compilers=list(dict.fromkeys(frame["compiler"])),
            batch_sizes=sorted({int(size) for size in frame["batch_size"]}),
            statuses=[name for name in theme.STATUS_SHAPES if (frame["status"] == name).any()],
            figures=figures,
            logarithmic={name: any(_spans(part[name]) for part in parts) for name in figures},
        )

    def colour(self) -> alt.Color:
        import altair as alt

        scale = alt.Scale(domain=self.compilers, range=list(theme.colours(self.compilers).values()))
        legend = alt.Legend(symbolType="stroke", symbolStrokeWidth=3, symbolSize=200)
        return alt.Color("compiler:N", scale=scale, title="compiler", legend=legend)

    def dash(self) -> alt.StrokeDash:
        import altair as alt

        scale = alt.Scale(domain=self.compilers, range=list(theme.dashes(self.compilers).values()))
        return alt.StrokeDash("compiler:N", scale=scale, title="compiler")

    def shape(self) -> alt.Shape:
        import altair as alt

        scale = alt.Scale(domain=self.statuses, range=[theme.STATUS_SHAPES[name] for name in self.statuses])
        return alt.Shape("status:N", scale=scale, title="no result")


def _row(look: _Look, network: str, frame: pd.DataFrame) -> alt.HConcatChart:
    import altair as alt

    panel = _lines if len(look.batch_sizes) > 1 else _bars
    return alt.hconcat(*(panel(look, frame, figure) for figure in look.figures), spacing=24).properties(
        title=alt.TitleParams(network, offset=6)
    )


def _lines(look: _Look, frame: pd.DataFrame, figure: str) -> alt.LayerChart:
    import altair as alt

    domain = _domain(frame[figure], look.logarithmic[figure])
    x = alt.X("batch_size:Q", title="batch size").scale(type="log", base=2, nice=False, padding=14)
    x = x.axis(values=look.batch_sizes, format="d", grid=False, labelOverlap="greedy", labelSeparation=5)
    kind: Literal["log", "linear"] = "log" if look.logarithmic[figure] else "linear"
    axis = alt.Axis(tickCount=5, format="~s" if domain[1] >= 10_000 else ",.3~r")
    y = alt.Y("value:Q", title=_TITLES[figure], axis=axis).scale(type=kind, domain=domain, nice=False)
    base = alt.Chart(_inline(_points(frame, figure))).encode(x, y, look.colour(), tooltip=_TOOLTIP)
    lines = base.mark_line(strokeWidth=2, invalid="break-paths-filter-domains").encode(look.dash())
    points = base.transform_filter("isValid(datum.value)").mark_circle(size=42, opacity=1)
    layers: list[alt.Chart] = [lines, points]
    if look.statuses:
        failed = alt.Chart(_inline(_feet(frame, domain, look.logarithmic[figure]))).encode(
            x, y, look.colour(), look.shape()
        )
        layers.append(failed.mark_point(filled=True, size=64, opacity=1).encode(tooltip=_TOOLTIP))
    return alt.LayerChart(layer=layers, width=270, height=180)


def _bars(look: _Look, frame: pd.DataFrame, figure: str) -> alt.LayerChart:
    import altair as alt

    most = frame[figure].max()
    room = (0.0, float(most) * 1.15 if most > 0 else 1.0)  # for the number behind the longest bar
    x = alt.X("value:Q", title=_TITLES[figure], axis=alt.Axis(tickCount=5, format="~s", labelBound=True)).scale(
        domain=room, nice=False
    )
    names = alt.Axis(labels=figure == look.figures[0], labelLimit=220, ticks=False, domain=False, minExtent=0)
    y = alt.Y("compiler:N", title=None, sort=look.compilers, axis=names)
    base = alt.Chart(_inline(_points(frame, figure))).encode(x, y, tooltip=_TOOLTIP)
    there, missing = base.transform_filter("isValid(datum.value)"), base.transform_filter("!isValid(datum.value)")
    bars = there.mark_bar(height=13).encode(look.colour().legend(None))
    number = alt.Text("value:Q", format=".4g" if figure == "speedup" else ",.4~r")
    numbers = there.mark_text(align="left", dx=4, fontSize=10, color="#444444").encode(number)
    why = missing.mark_text(align="left", dx=4, fontSize=10, color="#B3261E").encode(x=alt.datum(0), text="why:N")
    return alt.LayerChart(layer=[bars, numbers, why], width=270, height=alt.Step(20))


_TOOLTIP = ["network:N", "compiler:N", "batch_size:Q", "status:N", "value:Q", "error:N"]


def _points(frame: pd.DataFrame, figure: str) -> list[dict[str, Any]]:
    """A row a trial; one without a number stays, so that its line breaks there."""
    rows = _records(frame)
    for row, value in zip(rows, frame[figure].tolist(), strict=True):
        row["value"] = value if np.isfinite(value) else None
        row["why"] = "not compared" if row["status"] == "ok" and row["value"] is None else row["status"]
    return rows


def _feet(frame: pd.DataFrame, domain: Sequence[float], logarithmic: bool) -> list[dict[str, Any]]:
    """A row a failed trial, placed at the foot of its panel; those of one batch size stand on each other."""
    rows: list[dict[str, Any]] = []
    for _, part in frame[frame["status"].isin(theme.STATUS_SHAPES)].groupby("batch_size"):
        for at, row in enumerate(_records(part)):
            share = 0.04 + 0.07 * at
            low, high = domain
            row["value"] = low * (high / low) ** share if logarithmic else low + (high - low) * share
            rows.append(row)
    return rows


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    columns = ["network", "compiler", "batch_size", "status", "error"]
    lines = zip(*(frame[name].tolist() for name in columns), strict=True)
    return [dict(zip(columns, line, strict=True)) for line in lines]


def _inline(rows: list[dict[str, Any]]) -> alt.InlineData:
    import altair as alt

    return alt.InlineData(values=rows)


def _spans(values: pd.Series) -> bool:
    positive = values[values > 0]
    return bool(len(positive) and positive.max() > LOG_FROM * positive.min())


def _domain(values: pd.Series, logarithmic: bool) -> tuple[float, float]:
    """From zero, or from a little below the least, to a little above the most."""
    positive = values[values > 0]
    if not len(positive):
        return (0.1, 1.0) if logarithmic else (0.0, 1.0)
    low, high = float(positive.min()), float(positive.max())
    return (low / 2, high * 1.5) if logarithmic else (0.0, high * 1.08)


def _frame(data: Data) -> pd.DataFrame:
    """The trials to draw, each with the name of its network."""
    import pandas as pd

    found = nodes(data).values()
    several = len({label for node in found for label in np.atleast_1d(node["device"].values).tolist()}) > 1
    frames = []
    for node in found:
        part = trial_table(_extremes(node))
        part["network"] = [_network(row, factor_dims(node), several) for _, row in part.iterrows()]
        frames.append(part)
    return pd.concat(frames, ignore_index=True)


def _extremes(node: xr.Dataset) -> xr.Dataset:
    for dim in factor_dims(node):
        values = node[dim].values
        node = node.isel({dim: sorted({int(values.argmin()), int(values.argmax())})})
    return node


def _network(row: pd.Series, factors: Sequence[str], several: bool) -> str:
    parts = [row["workload"], *(f"{name} {row[name]:g}" for name in factors)]
    return ", ".join(parts) + (f" on {row['device']}" if several else "")


def _provenance(data: Data) -> str:
    """How many samples, of which run, on which devices."""
    found = list(nodes(data).values())
    counts = np.concatenate([node["latency"].notnull().sum("repeat").values.ravel() for node in found])
    counts = counts[counts > 0]
    devices = dict.fromkeys(label for node in found for label in np.atleast_1d(node["device"].values).tolist())
    least, most = (int(counts.min()), int(counts.max())) if len(counts) else (0, 0)
    samples = f"{least} to {most}" if least != most else f"{most}"
    parts = [f"median of {samples} samples a trial", f"device {', '.join(devices)}"]
    if data.attrs.get("run_id"):
        parts.append(f"run {data.attrs['run_id']}")
    return " · ".join(parts)


def _remarks(data: Data, frame: pd.DataFrame, left_out: Sequence[str]) -> list[str]:
    """What a reader must know to read the figure right, a line each."""
    remarks = []
    if data.attrs.get("synthetic"):
        remarks.append("synthetic: nothing was measured")
    batch_sizes = set(frame["batch_size"])
    if len(batch_sizes) == 1:
        remarks.append(f"batch size {batch_sizes.pop()}")
    cut = dict.fromkeys(dim for node in nodes(data).values() for dim in factor_dims(node) if node.sizes[dim] > 2)
    if cut:
        remarks.append(f"of {' and '.join(cut)} only the smallest and the largest are drawn")
    if left_out:
        remarks.append(f"{len(left_out)} more networks are not drawn, from {left_out[0]} on")
    unlike = contracts.remarks(data)
    remarks += unlike
    if not frame["speedup"].notna().any() and not unlike:
        remarks.append("no speed-up: there is no identity that it could be relative to")
    pending = int((frame["status"] == "pending").sum())
    if pending:
        remarks.append(f"{pending} trials are pending")
    return remarks
