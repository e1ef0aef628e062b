"""Speed-up by depth: the paper's figure 7."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ngbkit import metrics
from ngbkit.dataset.storage import Data
from ngbkit.figures import captions, lines, provenance, rows
from ngbkit.sweep.trials import BASELINE

if TYPE_CHECKING:
    import altair as alt


@provenance.traced
def depth(
    data: Data,
    *,
    factor: str = "depth",
    baseline: str = BASELINE,
    ci: float | None = 0.95,
    **select: Any,
) -> alt.FacetChart:
    """Speed-up by depth, one panel per network and batch size, one line per compiler (the paper's figure 7).

    Each panel has its own axis, as in the paper, so that compilers are distinguishable at one batch size; the line at 1
    is common to all.

    Parameters
    ----------
    data
        With at least two values of `factor`; networks that do not take it are excluded.
    factor
        The factor along the x axis; texts have no order and no line.
    baseline, ci, **select
        As for `speedup`.

    Raises
    ------
    MetricError
        There is no such baseline, or no network with two values of `factor`.
    UnknownNameError, UsageError
        As for `throughput`.
    """
    speedups = rows.wrap_metric(partial(metrics.speedup, baseline=baseline, unlike="mask"), ci)
    values = rows.require_factor(factor, speedups, "depth", "1:6")
    frame = rows.drop_baseline(rows.build_rows(data, values, select, axes=[factor]), baseline)
    if frame["batch_size"].nunique() > 1:
        frame["network"] = [f"{row['network']}, batch {row['batch_size']}" for row in frame.to_dict("records")]
    spec = lines.Lines(
        frame=frame, x=factor, value=f"speed-up over {baseline}", reference=1, zero=False, families=False
    )
    chart, remarks = lines.draw(spec)
    text = f"Speed-up over {baseline} by {factor}"
    title = captions.build_title(text, data, frame, remarks, against=["compiler"], baseline=baseline, ci=ci)
    return lines.finish(chart, title)
