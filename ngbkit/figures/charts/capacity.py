"""Latency against the rate of requests: the tests by which a capacity is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ngbkit.dataset.long_form import list_factors
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError, UsageError
from ngbkit.figures import captions, lines, marks, provenance, rows
from ngbkit.metrics.serving.capacities import find_capacities
from ngbkit.metrics.serving.service import list_columns, parse_service
from ngbkit.user_text import format_seconds

if TYPE_CHECKING:
    import altair as alt

_SETTINGS = ("quantile", "batch_sizes", "seconds", "seed")
_WIDTH, _HEIGHT, _GAP, _ROW_GAP, _COLUMNS = 300, 170, 64, 74, 3
# A panel shows latencies up to so many deadlines.
_MOST_DEADLINES = 3.0


@provenance.traced
def capacity(data: Data, deadline: str | float | None = None, **keywords: Any) -> alt.FacetChart:
    """A quantile of the latency at each rate of requests that LoadGen sent: a panel per network, a line per compiler.

    The marks are the tests of `ngbkit.capacity`, hollow where other work slowed them. A test below the
    deadline is invalid where its requests are too few to prove it.

    Parameters
    ----------
    data
        A dataset whose capacities were measured: the figure measures nothing.
    deadline
        A time such as ``"50ms"``, or seconds.
    **keywords
        As for `ngbkit.capacity`, its selection included.

    Raises
    ------
    MetricError
        No capacity was measured with these arguments.
    UnknownNameError, UsageError
        An argument is invalid.
    """
    import altair as alt

    if deadline is None:
        raise UsageError("invalid deadline: got none; expected a time such as '50ms'. Give one to capacity().")
    settings = {name: keywords.pop(name) for name in _SETTINGS if name in keywords}
    service = parse_service(deadline, **settings)
    tests = find_capacities(data, service, list_columns(data, service, keywords)).tests
    if tests.empty:
        raise MetricError(
            "no capacity to draw: none was measured with these arguments. Measure it with `ngbkit.capacity`, with the "
            "same arguments."
        )
    names = rows.name_networks(tests, list_factors(data), tests["device"].nunique() > 1)
    frame = tests.assign(network=names, value=1e3 * tests["latency"], conclusive=~tests["contended"].astype(bool))
    frame = frame.assign(status="ok").sort_values("rate")
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
    y = alt.Y(
        "value:Q",
        title=title,
        scale=alt.Scale(type="log", domain=bounds, nice=False, clamp=True),
        axis=alt.Axis(tickCount=4, labelExpr=lines.NUMBER),
    )
    x = alt.X(
        "rate:Q", title="requests/s", scale=alt.Scale(zero=True, nice=False), axis=alt.Axis(tickCount=5, grid=False)
    )
    grid = (columns * (width + _GAP), -(-len(panels) // columns) * (_HEIGHT + _ROW_GAP))
    base = alt.Chart().encode(x, y, look.encode_colour(area=grid))
    tooltip: list[Any] = ["network:N", "compiler:N", alt.Tooltip("rate:Q", title="requests/s", format=".3~g")]
    tooltip += [alt.Tooltip("value:Q", title=title, format=".3~g"), "valid:N", "requests:Q", "late:Q"]
    layers = [
        alt.Chart().mark_rule(color="#999999", strokeDash=[4, 3]).encode(y=alt.datum(deadline_ms)),
        base.mark_line(strokeWidth=2, clip=True).encode(look.encode_dash()),
        *(points.encode(tooltip=tooltip) for points in marks.draw_points(base, frame, size=44)),
        marks.draw_titles("network", panels, width + _GAP - 10),
    ]
    inlined = ["network", "compiler", "rate", "value", "valid", "requests", "late", "conclusive"]
    chart: alt.FacetChart = alt.layer(
        *layers, data=marks.inline(marks.drop_conclusive(frame[inlined])), width=width, height=_HEIGHT
    ).facet(
        facet=alt.Facet("network:N", title=None, sort=panels[: lines.PANELS], header=lines.NO_HEADER),
        columns=columns,
        bounds="flush",
        spacing={"row": _ROW_GAP, "column": _GAP},
    )
    chart = chart.resolve_scale(x="independent").resolve_axis(x="independent")
    remarks.append(f"dashed: the deadline of {format_seconds(service.deadline)}")
    if not frame["conclusive"].all():
        remarks.append("hollow: other work slowed the test")
    head = "Latency against the rate of requests, measured by MLPerf's LoadGen"
    return lines.finish(chart, captions.build_title(head, data, frame.assign(conclusive=True), remarks))
