"""Latency against throughput: what each compiler, batch size and device can serve within a deadline."""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from ngbkit import validation
from ngbkit.dataset.long_form import list_factors
from ngbkit.dataset.selection import LABELS, select_rows
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL
from ngbkit.figures import captions, lines, marks, provenance, rows, theme
from ngbkit.metrics.serving.configurations import list_configurations
from ngbkit.sweep.records import NOT_CHECKED
from ngbkit.user_text import format_seconds, parse_duration

_WIDTHS, _HEIGHT, _GAP, _ROW_GAP = (420, 320, 200), 220, 64, 74
_FRONT = "#8C8C8C"


@provenance.traced
def frontier(
    data: Data, *, deadline: str | float | None = None, quantile: float = 0.99, **select: Any
) -> alt.FacetChart:
    """A quantile of latency against throughput, with a panel per network and a line per compiler over its batch sizes.

    The wide grey line is the front: no other configuration has a higher throughput within that latency; the numbers are
    its batch sizes. Bars are 95 % intervals of both; a latency without a right bar has too few samples for an upper
    end. What `ngbkit.metrics.serving.choices.choose` takes from it is left of the deadline, and highest.

    Parameters
    ----------
    data
        With samples.
    deadline
        The longest latency, such as ``"50ms"``, or in seconds: a vertical line.
    quantile
        The share of the calls that have at most that latency, from 0.5 to below 1.
    **select
        As for `throughput`.

    Raises
    ------
    MetricError
        The dataset has no samples in rounds.
    UnknownNameError, UsageError
        As for `throughput`; or the deadline or the quantile is invalid.
    """
    deadline_s = math.nan if deadline is None else parse_duration(deadline, "deadline")
    share = f"{100 * validation.check('quantile', validation.Quantile, quantile):.10g} %"
    frame, remarks = rows.drop_failed_compilers(_build_rows(data, quantile, select))
    panels = list(dict.fromkeys(frame["network"]))
    remarks += lines.describe_omitted(panels)
    frame = frame[frame["network"].isin(panels[: lines.PANELS])].reset_index(drop=True)
    # What was not checked is drawn, and never on the front.
    trials = frame[frame["status"].eq(NOT_CHECKED) | (frame["status"].eq("ok") & (frame["excluded"] == ""))]
    columns = min(len(_WIDTHS), len(panels))
    width = _WIDTHS[columns - 1]
    look = marks.Look.of(frame)
    devices = list(dict.fromkeys(frame["device"]))
    title = f"latency of {share} of calls (ms)"
    is_log = lines.needs_log_axis(trials.assign(value=trials["ms"]), "network")
    x_scale = alt.Scale(type="log" if is_log else "linear", nice=not is_log, padding=0 if not is_log else 14, zero=True)
    y_log = lines.needs_log_axis(trials, "network")
    y_scale = alt.Scale(type="log" if y_log else "linear", nice=not y_log, padding=10 if y_log else 0)
    x_axis = alt.Axis(tickCount=5, labelExpr=lines.NUMBER, labelOverlap="greedy", labelSeparation=6, grid=False)
    x, x_low = (alt.X(f"{name}:Q", title=title, scale=x_scale, axis=x_axis) for name in ("ms", "ms_low"))
    y, y_low = (
        alt.Y(f"{name}:Q", title="samples/s", scale=y_scale, axis=alt.Axis(tickCount=5, labelExpr=lines.NUMBER))
        for name in ("value", "low")
    )
    trial = alt.Chart().transform_filter("datum.kind == 'trial'")
    area = (columns * (width + _GAP), -(-len(panels) // columns) * (_HEIGHT + _ROW_GAP))
    colour = look.encode_colour(area=area)
    coloured = trial.encode(colour)
    tooltip: list[Any] = ["network:N", "compiler:N", "device:N", alt.Tooltip("batch_size:Q", title="batch size")]
    numbers = {"value": "samples/s", "low": "low", "high": "high"}
    numbers |= {"ms": title, "ms_low": "low (ms)", "ms_high": "high (ms)"}
    tooltip += [alt.Tooltip(f"{name}:Q", title=text, format=".4~g") for name, text in numbers.items()]
    tooltip.append("samples:Q")
    # Shapes distinguish devices; those of one device have the compiler's own, which the legend shows in its colour.
    series, labels = ("device", devices) if len(devices) > 1 else ("compiler", look.labels)
    if len(devices) == 1:
        colour["legend"].symbolType, colour["legend"].symbolSize = alt.Undefined, 70
    shapes = alt.Scale(domain=labels, range=theme.assign_shapes(labels))
    points = coloured.encode(alt.Shape(f"{series}:N", scale=shapes, title=series))
    front = alt.Chart().transform_filter("datum.kind == 'front'").encode(x, y)
    layers = [
        front.mark_line(interpolate="step-after", strokeWidth=7, opacity=0.35, color=_FRONT),
        coloured.mark_line(strokeWidth=1.5, opacity=0.8).encode(
            x, y, look.encode_dash(), alt.Detail("device:N"), alt.Order("batch_size:Q")
        ),
        coloured.mark_rule(strokeWidth=1.2, opacity=0.5).encode(x_low, y, alt.X2("ms_high:Q")),
        coloured.mark_rule(strokeWidth=1.2, opacity=0.5).encode(x, y_low, alt.Y2("high:Q")),
        *(part.encode(x, y, tooltip=tooltip) for part in marks.draw_points(points, trials, size=44)),
        front.mark_text(align="right", baseline="bottom", dx=-4, dy=-4, fontSize=10, color=theme.TITLE).encode(
            text="batch_size:Q"
        ),
    ]
    if deadline is not None:
        layers.insert(
            0,
            alt.Chart()
            .mark_rule(color=marks.REASON_COLOUR, strokeDash=[4, 3], strokeWidth=1.5)
            .encode(x=alt.datum(1e3 * deadline_s)),
        )
    layers.append(marks.draw_titles("network", panels, width + _GAP - 10))
    points_frame = marks.drop_conclusive(_concat_points(trials))
    chart = alt.layer(*layers, data=marks.inline(points_frame), width=width, height=_HEIGHT)
    facet = alt.Facet("network:N", title=None, sort=panels, header=lines.NO_HEADER)
    spacing = {"row": _ROW_GAP, "column": _GAP}
    grid: alt.FacetChart = chart.facet(facet=facet, columns=columns, bounds="flush", spacing=spacing)
    grid = grid.resolve_scale(x="independent", y="independent").resolve_axis(x="independent", y="independent")
    remarks = [*_describe(trials, share, deadline_s), *remarks, *captions.describe_failures(frame)]
    text = f"Throughput against the latency of {share} of calls"
    return lines.finish(
        grid, captions.build_title(text, data, frame, remarks, against=["compiler"], ci=LEVEL, absolute=True)
    )


def _build_rows(data: Data, quantile: float, select: dict[str, Any]) -> pd.DataFrame:
    """The configurations to draw, one per row, with the network of their panel."""
    factors = list_factors(data)
    frame = select_rows(list_configurations(data, quantile), select, ["workload", *factors, *LABELS])
    frame.insert(0, "network", rows.name_networks(frame, factors, with_device=False))
    milliseconds = {f"ms{end}": 1e3 * frame[f"latency{end}"] for end in ("", "_low", "_high")}
    ends = {"value": "throughput", "low": "throughput_low", "high": "throughput_high"}
    assigned: pd.DataFrame = frame.assign(**milliseconds, **{name: frame[column] for name, column in ends.items()})
    return assigned


def _concat_points(trials: pd.DataFrame) -> pd.DataFrame:
    """The trials, whose bars end where an end is known, and the front of each network."""
    names = ["network", "compiler", "device", "batch_size", "value", "low", "high", "ms", "ms_low", "ms_high"]
    bounded = trials[[*names, "conclusive", "samples"]].assign(kind="trial")
    bounded["ms_high"] = bounded["ms_high"].where(np.isfinite(bounded["ms_high"]), bounded["ms"])
    columns = ["network", "batch_size", "value", "ms", "kind", "conclusive"]
    groups = trials[trials["status"] == "ok"].groupby("network", sort=False)
    fronts = [rows.find_front(members)[columns] for _, members in groups]
    return pd.concat([bounded, *fronts], ignore_index=True).astype({"conclusive": bool})


def _describe(trials: pd.DataFrame, share: str, deadline_s: float) -> list[str]:
    """Explain the marks and the limits of their evidence."""
    text = f"x: the latency that {share} of calls keep; wide grey line: the front, with its batch sizes"
    remarks = [text if math.isnan(deadline_s) else f"{text}; dashed: the deadline, {format_seconds(deadline_s)}"]
    count = int(np.isinf(trials["ms_high"]).sum())
    if count:
        needed = int(trials["samples_needed"].max())
        remarks.append(
            f"{count} of {len(trials)} latencies have no upper end: too few samples for this quantile (-r {needed})"
        )
    blocks = int((trials["calls"] > 1).sum())
    if blocks:
        remarks.append(f"{blocks} of {len(trials)} latencies are of a block of short calls, and so at most this")
    return remarks
