"""The rates of each trial below the roofline of its device."""

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
    """Operations per second against operations per byte, below the roof of each device, one panel per device.

    The roof is the device's own measured peak, in f32 with the threads of the run; traffic is the compulsory one (see
    `ngbkit.metrics.roofline`). A column of another precision can exceed the roof.

    Parameters
    ----------
    data
        With the operations and bytes of the networks, and the devices' measured peaks.
    **select
        As for `throughput`.

    Raises
    ------
    MetricError
        The dataset lacks one of these.
    UnknownNameError, UsageError
        As for `throughput`.
    """
    import altair as alt

    frame, omissions = rows.drop_failed_compilers(rows.build_rows(data, _compute_rates, select))
    look = marks.Look.of(frame)
    x = alt.X("intensity:Q", title="operations per byte (FLOP/B)", scale=alt.Scale(type="log", nice=False))
    x = x.axis(tickCount=5, format="~g", grid=False)
    y = alt.Y("value:Q", title="operations per second (FLOP/s)", scale=alt.Scale(type="log", nice=False, padding=10))
    y = y.axis(tickCount=5, format=".1~s", grid=False)
    tooltip = ["network:N", "compiler:N", "batch_size:Q", alt.Tooltip("intensity:Q", format=".3~g")]
    tooltip += [
        alt.Tooltip("value:Q", title="FLOP/s", format=".3~s"),
        alt.Tooltip("fraction:Q", format=".0%"),
        "bound:N",
        "samples:Q",
    ]
    roof = alt.Chart().transform_filter("datum.kind == 'roof'").mark_line(color="#777777", strokeWidth=2).encode(x, y)
    trial = alt.Chart().transform_filter("datum.kind == 'trial'")
    points = trial.mark_circle(size=60, opacity=0.85).encode(x, y, look.encode_colour(symbol="circle"), tooltip=tooltip)
    devices = list(dict.fromkeys(frame["device"]))
    facet = alt.Facet("device:N", title=None, sort=devices, header=lines.HEADER)
    trials = frame[frame["value"].notna()]
    chart = alt.layer(roof, points, data=marks.inline(_concat_points(data, trials)), width=_WIDTH, height=_HEIGHT)
    grid = chart.facet(facet=facet, columns=min(2, len(devices)))
    remarks = ["compulsory traffic: weights, inputs and outputs, moved once"]
    remarks += [*omissions, *captions.describe_failures(frame)]
    return lines.finish(grid, captions.build_title("Roofline", data, frame, remarks))


def _compute_rates(node: xr.Dataset) -> xr.Dataset:
    return metrics.roofline(node)[["flops", "intensity", "fraction", "bound"]].rename(flops="value")


def _concat_points(data: Data, trials: pd.DataFrame) -> pd.DataFrame:
    """The trials, and three points of the roof of each device: the minimum of its two peaks."""
    import pandas as pd

    environments: dict[str, dict[str, Any]] = {}
    for node in nodes(data).values():
        environments = ratios.read_environments(node) | environments
    roofs: list[dict[str, Any]] = []
    for device, intensities in trials.groupby("device", sort=False)["intensity"]:
        if peaks := environments.get(str(device), {}).get("peaks"):
            flops, bytes_per_s = float(peaks["flops"]), float(peaks["bytes_per_s"])
            ridge = flops / bytes_per_s
            left, right = min(intensities.min(), ridge) / _MARGIN, max(intensities.max(), ridge) * _MARGIN
            for intensity in (left, ridge, right):
                roofs.append({"device": device, "intensity": intensity, "value": min(flops, bytes_per_s * intensity)})
    names = ["device", "network", "compiler", "batch_size", "intensity", "value", "fraction", "bound", "samples"]
    return pd.concat([trials[names].assign(kind="trial"), pd.DataFrame(roofs).assign(kind="roof")], ignore_index=True)
