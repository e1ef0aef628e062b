"""Networks against the fastest of them, with the interval of each ratio."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from ngbkit.dataset.selection import select as select_labels
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError
from ngbkit.figures import captions, lines, marks, provenance
from ngbkit.metrics.rankings.networks import By
from ngbkit.metrics.rankings.ranking import network_ranking

# The width of one panel, by their number in a row: with the names, a row is at most 745 pixels wide.
_WIDTHS = {1: 420, 2: 250, 3: 165}
_LINE, _LABEL = 24, 190


@provenance.traced
def networks(data: Data, *, by: By = "best", ci: float = 0.95, **select: Any) -> alt.FacetChart:
    """The throughput of each network over the highest, one panel per batch size and device.

    The subtitle says how the networks were compared: side by side, normalised by anchors, or minutes apart, in which
    case the intervals have an allowance for what the machine does meanwhile.

    Parameters
    ----------
    data
        With samples, of two networks or more.
    by
        ``"best"`` draws each network with its best compiler, ``"compiler"`` with every compiler.
    ci
        The probability of the intervals.
    **select
        As for `throughput`; what is not selected is not compared.

    Raises
    ------
    MetricError
        There is only one network, or there are no samples.
    UnknownNameError, UsageError
        As for `throughput`.
    """
    frame = _build_rows(select_labels(data, **select) if select else data, by, ci)
    names = list(dict.fromkeys(frame["network"]))
    if len(names) < 2:
        raise MetricError(
            f"networks() compares networks, and this dataset has only {', '.join(names) or 'none'}. "
            "Measure several in one sweep: `ngbkit run resnet18 deit_tiny_patch16_224 --together`."
        )
    panels = list(dict.fromkeys(frame["panel"]))
    columns = min(len(panels), max(_WIDTHS))
    width = _WIDTHS[columns]
    look = marks.Look.of(frame)
    is_log = lines.needs_log_axis(frame, "panel")
    scale = alt.Scale(type="log" if is_log else "linear", zero=False, nice=False, padding=12)
    axis = alt.Axis(tickCount=4, format=".3~g", labelOverlap="greedy")
    x = alt.X("value:Q", title=None, scale=scale, axis=axis)
    y = alt.Y("network:N", title=None, sort=names, axis=marks.build_name_axis(names, _LABEL, grid=True))
    colour = look.encode_colour(legend=alt.Legend(symbolType="circle", symbolOpacity=1, orient="bottom"))
    base = alt.Chart().encode(y, colour)
    if by == "compiler":
        base = base.encode(alt.YOffset("compiler:N", sort=look.labels))
    titles = {"value": "throughput over the fastest", "low": "low", "high": "high", "probability": "probability"}
    tooltip: list[Any] = ["network:N", "compiler:N", *marks.build_number_tooltip(frame, titles), "compared:N"]
    layers = [
        alt.Chart()
        .transform_aggregate(groupby=["panel"])
        .mark_rule(color="#888888", strokeDash=[4, 4])
        .encode(x=alt.datum(1)),
        base.mark_rule(strokeWidth=2).encode(alt.X("low:Q", title=None, scale=scale, axis=axis), alt.X2("high:Q")),
        *(mark.encode(x, tooltip=tooltip) for mark in marks.draw_points(base, frame, size=60)),
        marks.draw_titles("panel", panels, width),
    ]
    marked = marks.drop_conclusive(
        frame[["panel", "network", "compiler", "value", "low", "high", "probability", "compared", "conclusive"]]
    )
    height = alt.Step(_LINE if by == "best" else _LINE // 2)
    chart = alt.layer(*layers, data=marks.inline(marked), width=width, height=height)
    facet = alt.Facet("panel:N", title=None, sort=panels, header=lines.NO_HEADER)
    spacing = {"row": 64, "column": 30}
    grid: alt.FacetChart = chart.facet(facet=facet, columns=columns, bounds="flush", spacing=spacing)
    grid = grid.resolve_scale(x="independent").resolve_axis(x="independent")
    manners = list(dict.fromkeys(frame[frame["rank"] > 1]["compared"]))
    allowed = "; the intervals allow for it" if "minutes apart" in manners else ""
    remark = f"compared {' and '.join(manners)}{allowed}"
    title = captions.build_title("Throughput over that of the fastest network", data, frame, [remark], ci=ci)
    return lines.finish(grid, title)


def _build_rows(data: Data, by: By, ci: float) -> pd.DataFrame:
    """The rows of the ranking, in the form of a figure's rows."""
    frame = network_ranking(data, by, ci=ci, unlike="mask").rename(
        columns={"of_best": "value", "ci_low": "low", "ci_high": "high"}
    )
    many_devices = frame["device"].nunique() > 1
    places = zip(frame["batch_size"], frame["device"], strict=True)
    frame["panel"] = [f"batch {size}" + (f" on {device}" if many_devices else "") for size, device in places]
    return frame.sort_values(["device", "batch_size"], kind="stable").assign(status="ok").reset_index(drop=True)
