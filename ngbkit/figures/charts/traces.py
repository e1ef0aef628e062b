"""Latency round by round, which shows drift and disturbances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ngbkit.dataset.storage import Data
from ngbkit.figures import captions, lines, marks, provenance, samples

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

_COLUMNS, _HEIGHT, _GAP = 3, 150, 74
_WIDTH = lines.PAGE_WIDTH // _COLUMNS - _GAP


@provenance.traced
def traces(data: Data, **select: Any) -> alt.FacetChart:
    """Latency round by round, one panel per network and batch size, one line per compiler.

    The compilers of a group are interleaved in rounds: where all lines rise together, the machine has changed, and
    ratios taken round by round have not. Each line is relative to its own median. Contended rounds are shaded.

    Parameters
    ----------
    data
        With samples.
    **select
        As for `throughput`.

    Raises
    ------
    MetricError
        The dataset has no samples.
    UnknownNameError, UsageError
        As for `throughput`.
    """
    import altair as alt

    trials, remarks = samples.build_panels(data, select)
    panels = list(dict.fromkeys(trials["panel"]))
    frame = _compute_rounds(samples.extract_samples(data, trials))
    look = marks.Look.of(trials)
    x = alt.X("round:Q", title="round", axis=alt.Axis(tickMinStep=1, grid=False, format="d"))
    y = alt.Y("relative:Q", title="latency over its median", scale=alt.Scale(zero=False, padding=8))
    base = alt.Chart().encode(x, look.encode_colour())
    times = {"ms": "latency (ms)", "relative": "latency over its median"}
    tooltip = ["compiler:N", "round:Q", *marks.build_number_tooltip(frame, times)]
    contended = alt.Chart().transform_filter("datum.contended").mark_rule(color="#E69F00", opacity=0.25, strokeWidth=4)
    layers = [
        contended.encode(x),
        alt.Chart().mark_rule(color="#999999", strokeDash=[2, 2]).encode(y=alt.datum(1)),
        base.mark_line(strokeWidth=1.5).encode(y, look.encode_dash()),
        base.mark_circle(size=16, opacity=1).encode(y, tooltip=tooltip),
    ]
    layers.append(marks.draw_titles("panel", panels, _WIDTH + _GAP - 10))
    facet = alt.Facet("panel:N", title=None, sort=panels, header=lines.NO_HEADER)
    chart = alt.layer(*layers, data=marks.inline(frame), width=_WIDTH, height=_HEIGHT)
    grid: alt.FacetChart = chart.facet(
        facet=facet, columns=min(_COLUMNS, len(panels)), bounds="flush", spacing={"row": 74, "column": _GAP}
    )
    grid = grid.resolve_scale(y="independent", x="independent").resolve_axis(x="independent")
    if frame["contended"].any():
        remarks.append("shaded: contended rounds")
    remarks += captions.describe_failures(trials)
    return lines.finish(grid, captions.build_title("Latency round by round", data, trials, remarks))


def _compute_rounds(timed: pd.DataFrame) -> pd.DataFrame:
    """The median of each round, and its ratio to the median of the trial.

    Rounds are counted from 0 in each panel: a merged dataset numbers those of each run from another million.
    """
    groups = timed.groupby(["panel", "compiler", "round"], sort=False)
    rounds = groups.agg(ms=("ms", "median"), contended=("contended", "any")).reset_index()
    medians = rounds.groupby(["panel", "compiler"], sort=False)["ms"].transform("median")
    rounds["round"] = rounds.groupby("panel", sort=False)["round"].rank("dense").astype(int) - 1
    return rounds.assign(relative=rounds["ms"] / medians).sort_values(["panel", "compiler", "round"], ignore_index=True)
