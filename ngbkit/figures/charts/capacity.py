"""Latency against the rate of requests: what a server of each network keeps its deadline at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ngbkit.dataset.long_form import list_factors
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError
from ngbkit.figures import captions, lines, marks, provenance, rows
from ngbkit.metrics.serving import queueing
from ngbkit.metrics.serving.service import Column, Service, format_seconds, list_columns, parse_service

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

_SETTINGS = ("quantile", "max_delay", "batch_sizes", "ci", "seed")
_WIDTH, _HEIGHT, _GAP, _ROW_GAP, _COLUMNS = 300, 170, 64, 74, 3
# Rates of a curve, over the highest throughput, denser where the latency rises.
_SHARES = 1 - (1 - np.linspace(0.03, 1, 14)) ** 1.5
# A panel shows latencies up to so many deadlines.
_MOST_DEADLINES = 3.0


@provenance.traced
def capacity(
    data: Data, *, deadline: str | float, checks: Sequence[Mapping[str, Any]] = (), **keywords: Any
) -> alt.FacetChart:
    """A quantile of the latency against the rate of requests, simulated: a panel per network, a line per compiler.

    Where a line crosses that of the deadline, the rate is the capacity (`ngbkit.metrics.capacity`). Marks are trials of
    a check by real load.

    Parameters
    ----------
    data
        With samples.
    deadline
        A time such as ``"50ms"``, or seconds.
    checks
        Those of ``ngbkit.capacity(ds, …, check=True).to_json()["checks"]``.
    **keywords
        As for `ngbkit.metrics.capacity`, its selection included.

    Raises
    ------
    MetricError
        The dataset has no samples.
    UnknownNameError, UsageError
        An argument is invalid.
    """
    import altair as alt

    settings = {name: keywords.pop(name) for name in _SETTINGS if name in keywords}
    service = parse_service(deadline, **settings)
    frame = _build_frame(data, list_columns(data, service, keywords), service, checks)
    panels = list(dict.fromkeys(frame["network"]))
    remarks = lines.describe_omitted(panels, "networks")
    frame = frame[frame["network"].isin(panels[: lines.PANELS])]
    look = marks.Look.of(frame)
    columns = min(_COLUMNS, len(panels))
    width = min(_WIDTH, lines.PAGE_WIDTH // columns - _GAP)
    deadline_ms = 1e3 * service.deadline
    least = float(frame["value"].min())
    bounds = [min(least, deadline_ms) / 1.25, _MOST_DEADLINES * max(deadline_ms, min(least, 10 * deadline_ms))]
    title = f"{service.percentile} latency (ms)"
    scale = alt.Scale(type="log", domain=bounds, nice=False, clamp=True)
    axis = alt.Axis(tickCount=4, labelExpr=lines.NUMBER)
    y, low = (alt.Y(f"{name}:Q", title=title, scale=scale, axis=axis) for name in ("value", "low"))
    x = alt.X(
        "rate:Q", title="requests/s", scale=alt.Scale(zero=True, nice=False), axis=alt.Axis(tickCount=5, grid=False)
    )
    grid = (columns * (width + _GAP), -(-len(panels) // columns) * (_HEIGHT + _ROW_GAP))
    base = alt.Chart().encode(x, look.encode_colour(area=grid))
    curve = base.transform_filter("datum.kind == 'simulated'")
    tooltip: list[Any] = ["network:N", "compiler:N", alt.Tooltip("rate:Q", title="requests/s", format=".3~g")]
    tooltip += [alt.Tooltip("value:Q", title=title, format=".3~g"), alt.Tooltip("kind:N", title="")]
    layers = [
        alt.Chart().mark_rule(color="#999999", strokeDash=[4, 3]).encode(y=alt.datum(deadline_ms)),
        curve.mark_area(opacity=0.16, clip=True).encode(low, alt.Y2("high:Q")),
        curve.mark_line(strokeWidth=2, clip=True).encode(y, look.encode_dash(), tooltip=tooltip),
        *(
            points.encode(y, tooltip=tooltip)
            for points in marks.draw_points(base.transform_filter("datum.kind == 'measured'"), frame, size=44)
        ),
        marks.draw_titles("network", panels, width + _GAP - 10),
    ]
    names = ["network", "compiler", "kind", "rate", "value", "low", "high", "settled"]
    inline = marks.inline(marks.drop_settled(frame[names]))
    chart: alt.FacetChart = alt.layer(*layers, data=inline, width=width, height=_HEIGHT).facet(
        facet=alt.Facet("network:N", title=None, sort=panels[: lines.PANELS], header=lines.NO_HEADER),
        columns=columns,
        bounds="flush",
        spacing={"row": _ROW_GAP, "column": _GAP},
    )
    chart = chart.resolve_scale(x="independent").resolve_axis(x="independent")
    remarks += [
        f"dashed: the deadline of {format_seconds(service.deadline)}; bands: {100 * (service.ci or 0.95):g} % intervals"
    ]
    if checks:
        hollow = "" if frame["settled"].all() else ", hollow where other work disturbed it"
        remarks.append(f"marks: measured by real load{hollow}")
    remarks += ["simulated: Poisson arrivals, one call at a time, batches up to the size with which each serves most"]
    head = f"Latency against the rate of requests, simulated{' and measured' if checks else ''}"
    return lines.finish(chart, captions.build_title(head, data, frame.assign(settled=True), remarks))


def _build_frame(
    data: Data, columns: Sequence[Column], service: Service, checks: Sequence[Mapping[str, Any]]
) -> pd.DataFrame:
    """The points of every curve and of every check."""
    import pandas as pd

    served = [column for column in columns if column.server is not None]
    if not served:
        raise MetricError("no capacity to draw: no trial has samples. Select other trials.")
    labels = pd.DataFrame([column.labels for column in served])
    names = rows.name_networks(labels, list_factors(data), labels["device"].nunique() > 1)
    points: list[dict[str, Any]] = []
    for name, column in zip(names, served, strict=True):
        point = {key: column.labels[key] for key in ("device", "compiler")}
        point |= {"network": name, "settled": True, "status": "ok"}
        points += [{**point, **part} for part in _draw_curve(column, service)]
        for check in checks:
            if dict(check["labels"]) == dict(column.labels):
                points += [{**point, **part} for part in _list_trials(check)]
    return pd.DataFrame(points)


def _draw_curve(column: Column, service: Service) -> list[dict[str, Any]]:
    server = column.server
    assert server is not None
    rates = server.throughput * _SHARES
    curve = queueing.compute_curve(server, rates, service.quantile, column.process_sd, service.ci or 0.95, service.seed)
    latency = 1e3 * np.stack(curve, axis=-1)
    return [
        {"kind": "simulated", "rate": rate, "value": value, "low": low, "high": high}
        for rate, (value, low, high) in zip(rates.tolist(), latency.tolist(), strict=True)
    ]


def _list_trials(check: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "kind": "measured",
            "rate": trial["rate"],
            "value": 1e3 * trial["latency"],
            "low": np.nan,
            "high": np.nan,
            "settled": not trial["disturbed"],
        }
        for trial in check["trials"]
    ]
