"""The rates of each trial below the roofline of its device."""

from __future__ import annotations

from functools import partial
from typing import Any

import altair as alt
import pandas as pd
import xarray as xr

from ngbkit import metrics
from ngbkit.dataset.environments import read_environments
from ngbkit.dataset.storage import Data
from ngbkit.figures import captions, lines, marks, provenance, rows
from ngbkit.metrics.roofline import roofline as compute_rates

_WIDTH, _HEIGHT = 440, 280
_MARGIN = 2.0
_ENDS = {"value": "FLOP/s", "low": "low", "high": "high"}


@provenance.traced
def roofline(data: Data, *, ci: float | None = 0.95, **select: Any) -> alt.FacetChart:
    """Operations per second against operations per byte, below the roof of each device, one panel per device.

    The roof is the device's own measured peak, in f32 with the threads of the run; traffic is the compulsory one (see
    `ngbkit.metrics.roofline.roofline`). A column of another precision can exceed the roof.

    Parameters
    ----------
    data
        With the operations and bytes of the networks, and the devices' measured peaks.
    ci, **select
        As for `throughput`.

    Raises
    ------
    MetricError
        The dataset lacks one of these.
    UnknownNameError, UsageError
        As for `throughput`.
    """
    frame, remarks = rows.drop_failed_compilers(rows.build_rows(data, partial(_compute_rates, ci=ci), select))
    look = marks.Look.of(frame)
    x = alt.X("intensity:Q", title="operations per byte (FLOP/B)", scale=alt.Scale(type="log", nice=False))
    x = x.axis(tickCount=5, format=".6~g", grid=False)
    y_title, y_scale = "operations per second (FLOP/s)", alt.Scale(type="log", nice=False, padding=10)
    y_axis = alt.Axis(tickCount=5, format=".3~s", grid=False)
    y = alt.Y("value:Q", title=y_title, scale=y_scale, axis=y_axis)
    tooltip: list[Any] = ["network:N", "compiler:N", alt.Tooltip("batch_size:Q", title="batch size")]
    tooltip += [alt.Tooltip("intensity:Q", title="operations per byte", format=".3~g")]
    tooltip += [
        *(alt.Tooltip(f"{name}:Q", title=title, format=".3~s") for name, title in _ENDS.items()),
        alt.Tooltip("fraction:Q", title="share of the peak", format=".0%"),
        "bound:N",
        "samples:Q",
    ]
    roof = alt.Chart().transform_filter("datum.kind == 'roof'").mark_line(color="#777777", strokeWidth=2).encode(x, y)
    trial = alt.Chart().transform_filter("datum.kind == 'trial'")
    trials = frame[frame["value"].notna()]
    coloured = trial.encode(x, look.encode_colour(symbol="circle"))
    interval = coloured.transform_filter("isValid(datum.low)").mark_rule(opacity=0.45)
    shape, omissions = marks.encode_networks(trials)
    points = marks.draw_points(coloured.encode(shape), trials, size=60, opacity=0.85)
    layers = [
        roof,
        interval.encode(alt.Y("low:Q", title=y_title, scale=y_scale, axis=y_axis), alt.Y2("high:Q")),
        *(part.encode(y, tooltip=tooltip) for part in points),
    ]
    devices = list(dict.fromkeys(frame["device"]))
    facet = alt.Facet("device:N", title=None, sort=devices, header=lines.HEADER)
    rows_and_roofs = marks.drop_conclusive(_concat_points(data, trials))
    chart = alt.layer(*layers, data=marks.inline(rows_and_roofs), width=_WIDTH, height=_HEIGHT)
    grid = chart.facet(facet=facet, columns=min(2, len(devices)))
    remarks += ["compulsory traffic: weights, inputs and outputs, moved once"]
    remarks += [*omissions, *captions.describe_failures(frame)]
    return lines.finish(grid, captions.build_title("Roofline", data, frame, remarks, ci=ci))


def _compute_rates(node: xr.Dataset, ci: float | None) -> xr.Dataset:
    """``value``, operations per second with their interval, and where they stand below the roof."""
    rates = compute_rates(node)
    throughputs = rows.wrap_metric(metrics.throughput, ci)(node)
    operations = rates["flops"] / throughputs["value"]
    columns = {"value": rates["flops"]}
    columns |= {name: throughputs[name] * operations for name in ("low", "high") if name in throughputs}
    columns |= {"conclusive": throughputs["conclusive"]} if "conclusive" in throughputs else {}
    return rates[["intensity", "fraction", "bound"]].assign(columns)


def _concat_points(data: Data, trials: pd.DataFrame) -> pd.DataFrame:
    """The trials, and three points of the roof of each device: the minimum of its two peaks."""
    environments = read_environments(data)
    roofs: list[dict[str, Any]] = []
    for device, intensities in trials.groupby("device", sort=False)["intensity"]:
        peaks = environments.get(str(device), {}).get("peaks") or {}
        if peaks.get("flops") and peaks.get("bytes_per_s"):
            flops, bytes_per_s = float(peaks["flops"]), float(peaks["bytes_per_s"])
            ridge = flops / bytes_per_s
            left, right = min(intensities.min(), ridge) / _MARGIN, max(intensities.max(), ridge) * _MARGIN
            for intensity in (left, ridge, right):
                roofs.append({"device": device, "intensity": intensity, "value": min(flops, bytes_per_s * intensity)})
    names = ["device", "network", "compiler", "batch_size", "intensity", "value", "low", "high", "conclusive"]
    points = trials[[*names, "fraction", "bound", "samples"]].assign(kind="trial")
    joined = pd.concat([points, pd.DataFrame(roofs).assign(kind="roof", conclusive=True)], ignore_index=True)
    return joined.astype({"conclusive": bool})
