"""How near each trial comes to what its device can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import xarray as xr

from ngbkit import metrics
from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.storage import Data
from ngbkit.figures import captions, lines, marks, provenance, rows
from ngbkit.metrics import ratios

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

_WIDTH, _HEIGHT = 440, 280
_MARGIN = 2.0


@provenance.traced
def roofline(data: Data, **select: Any) -> alt.FacetChart:
    """What each trial achieves over how much it computes a byte, below the roof of its device, a panel a device.

    The roof is the device's own measured peak, in f32 with the threads of the run; traffic is the compulsory one (see
    `ngbkit.metrics.roofline`). A column of another precision can lie above the roof.

    Parameters
    ----------
    data
        With what the networks compute and move, and the devices' measured peaks.
    **select
        As for `throughput`.

    Raises
    ------
    MetricError
        One of these lacks.
    UnknownNameError, UsageError
        As for `throughput`.
    """
    import altair as alt

    frame, silent = rows.heard(rows.rows(data, _values, select))
    roofs = _roofs(data, frame)
    drawn = _joined(frame, roofs)
    look = marks.Look.of(frame)
    x = alt.X("intensity:Q", title="operations a byte (FLOP/B)", scale=alt.Scale(type="log", nice=False))
    x = x.axis(tickCount=5, format="~g", grid=False)
    y = alt.Y("value:Q", title="operations a second (FLOP/s)", scale=alt.Scale(type="log", nice=False, padding=10))
    y = y.axis(tickCount=5, format=".1~s", grid=False)
    told = ["network:N", "compiler:N", "batch_size:Q", alt.Tooltip("intensity:Q", format=".3~g")]
    told += [
        alt.Tooltip("value:Q", title="FLOP/s", format=".3~s"),
        alt.Tooltip("fraction:Q", format=".0%"),
        "bound:N",
        "samples:Q",
    ]
    roof = alt.Chart().transform_filter("datum.kind == 'roof'").mark_line(color="#777777", strokeWidth=2).encode(x, y)
    trial = alt.Chart().transform_filter("datum.kind == 'trial'")
    points = trial.mark_circle(size=60, opacity=0.85).encode(x, y, look.colour(symbol="circle"), tooltip=told)
    devices = list(dict.fromkeys(frame["device"]))
    facet = alt.Facet("device:N", title=None, sort=devices, header=lines.HEADER)
    chart = alt.layer(roof, points, data=marks.inline(drawn), width=_WIDTH, height=_HEIGHT)
    grid = chart.facet(facet=facet, columns=min(2, len(devices)))
    remarks = ["traffic is the compulsory one: weights, inputs and outputs, once", *silent, *captions.failures(frame)]
    return lines.finished(grid, captions.title("Roofline", data, frame, remarks))


def _values(node: xr.Dataset) -> xr.Dataset:
    found = metrics.roofline(node)
    return found[["flops", "intensity", "fraction", "bound"]].rename(flops="value")


def _roofs(data: Data, frame: pd.DataFrame) -> pd.DataFrame:
    """A line a device: the least of what its arithmetic and its memory allow."""
    import pandas as pd

    found: list[dict[str, Any]] = []
    for node in nodes(data).values():
        for device, about in ratios.environments(node).items():
            peaks = about.get("peaks") or {}
            own = frame[(frame["device"] == device) & frame["value"].notna()]["intensity"]
            if device in {one["device"] for one in found} or not peaks or own.empty:
                continue
            flops, moved = float(peaks["flops"]), float(peaks["bytes_per_s"])
            ridge = flops / moved
            ends = min(float(own.min()), ridge) / _MARGIN, max(float(own.max()), ridge) * _MARGIN
            for intensity in (ends[0], ridge, ends[1]):
                found.append({"device": device, "intensity": intensity, "value": min(flops, moved * intensity)})
    return pd.DataFrame(found)


def _joined(frame: pd.DataFrame, roofs: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    there = frame[frame["value"].notna()]
    kept = ["device", "network", "compiler", "batch_size", "intensity", "value", "fraction", "bound", "samples"]
    return pd.concat([there[kept].assign(kind="trial"), roofs.assign(kind="roof")], ignore_index=True)
