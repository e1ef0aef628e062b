"""The first figure of a run: throughput by batch size, a row a network, with the speed-up beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import factor_dims, nodes
from ngbkit.dataset.storage import Data
from ngbkit.figures import captions, lines, marks, provenance, rows, theme
from ngbkit.metrics import contracts
from ngbkit.metrics.tables import trial_table

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

NETWORKS = 16
"""Rows of one figure, at most; the paper has fifteen networks."""

_TITLES = {"throughput": "throughput (samples/s)", "speedup": "speed-up over identity"}


@provenance.traced
def overview(data: Data) -> alt.ConcatChart:
    """Throughput by batch size, one line a compiler, one row a network and device, with the speed-up beside it.

    Of networks with factors, those with the smallest and the largest value of each are drawn, and the subtitle says so.
    A trial that failed is drawn at the foot of its panel, in a shape that tells how. With one batch size, lines become
    bars.

    Parameters
    ----------
    data
        What `ngbkit.dataset.assembly.assemble` gave.

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
    panels = [_row(look, str(name), part) for name, part in drawn.groupby("network", sort=False)]
    remarks = _remarks(data, frame, networks[NETWORKS:])
    title = captions.title("Throughput and speed-up", data, frame, remarks, against=["compiler"])
    return lines.finished(alt.concat(*panels, columns=1 if len(panels) < 5 else 2, spacing=28), title)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look(marks.Look):
    """What all panels of a figure share."""

    batch_sizes: list[int]
    figures: list[str]
    logarithmic: dict[str, bool]

    @classmethod
    def of(cls, frame: pd.DataFrame, of_what: str = "compiler") -> _Look:
        shared = marks.Look.of(frame, of_what)
        figures = [name for name in _TITLES if frame[name].notna().any()] or ["throughput"]
        parts = [part for _, part in frame.groupby("network", sort=False)]
        return cls(
            labels=shared.labels,
            of_what=of_what,
            statuses=shared.statuses,
            batch_sizes=marks.whole(frame["batch_size"]),
            figures=figures,
            logarithmic={name: any(lines.spans(part[name]) for part in parts) for name in figures},
        )


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
    base = alt.Chart(_points(frame, figure)).encode(x, y, look.colour(), tooltip=_TOOLTIP)
    curves = base.mark_line(strokeWidth=2, invalid="break-paths-filter-domains").encode(look.dash())
    points = base.transform_filter("isValid(datum.value)").mark_circle(size=42, opacity=1)
    layers: list[alt.Chart] = [curves, points]
    if look.statuses:
        failed = alt.Chart(_feet(frame, domain, look.logarithmic[figure])).encode(x, y, look.colour(), look.shape())
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
    y = alt.Y("compiler:N", title=None, sort=look.labels, axis=names)
    base = alt.Chart(_points(frame, figure)).encode(x, y, tooltip=_TOOLTIP)
    there, missing = base.transform_filter("isValid(datum.value)"), base.transform_filter("!isValid(datum.value)")
    bars = there.mark_bar(height=13).encode(look.colour().legend(None))
    number = alt.Text("value:Q", format=".4g" if figure == "speedup" else ",.4~r")
    numbers = there.mark_text(align="left", dx=4, fontSize=10, color="#444444").encode(number)
    why = missing.mark_text(align="left", dx=4, fontSize=10, color=marks.WHY).encode(x=alt.datum(0), text="why:N")
    return alt.LayerChart(layer=[bars, numbers, why], width=270, height=alt.Step(20))


_TOOLTIP = ["network:N", "compiler:N", "batch_size:Q", "status:N", "value:Q", "error:N"]
_COLUMNS = ["network", "compiler", "batch_size", "status", "error"]


def _points(frame: pd.DataFrame, figure: str) -> alt.InlineData:
    """A row a trial; one without a number stays, so that its line breaks there."""
    found = frame[_COLUMNS].assign(value=frame[figure].where(np.isfinite(frame[figure])))
    lacks = found["status"].eq("ok") & found["value"].isna()
    return marks.inline(found.assign(why=found["status"].mask(lacks, "not compared")))


def _feet(frame: pd.DataFrame, domain: Sequence[float], logarithmic: bool) -> alt.InlineData:
    """A row a failed trial, placed at the foot of its panel; those of one batch size stand on each other."""
    failed = frame[frame["status"].isin(list(theme.STATUS_SHAPES))][_COLUMNS]
    share = 0.04 + 0.07 * failed.groupby("batch_size").cumcount()
    low, high = domain
    return marks.inline(failed.assign(value=low * (high / low) ** share if logarithmic else low + (high - low) * share))


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
        part["network"] = rows.networks(part, factor_dims(node), several)
        frames.append(part)
    return pd.concat(frames, ignore_index=True)


def _extremes(node: xr.Dataset) -> xr.Dataset:
    for dim in factor_dims(node):
        values = node[dim].values
        node = node.isel({dim: sorted({int(values.argmin()), int(values.argmax())})})
    return node


def _remarks(data: Data, frame: pd.DataFrame, left_out: Sequence[str]) -> list[str]:
    """What a reader must know of this figure alone to read it right, a line each."""
    remarks = []
    batch_sizes = set(frame["batch_size"])
    if len(batch_sizes) == 1:
        remarks.append(f"batch size {batch_sizes.pop()}")
    cut = dict.fromkeys(dim for node in nodes(data).values() for dim in factor_dims(node) if node.sizes[dim] > 2)
    if cut:
        remarks.append(f"of {' and '.join(cut)} only the smallest and the largest are drawn")
    if left_out:
        remarks.append(f"{len(left_out)} more networks are not drawn, from {left_out[0]} on")
    if not frame["speedup"].notna().any() and not contracts.remarks(data):
        remarks.append("no speed-up: there is no identity that it could be relative to")
    return remarks
