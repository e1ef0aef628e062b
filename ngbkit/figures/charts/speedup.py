"""Speed-up by batch size: the paper's figure 6."""

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
def speedup(
    data: Data,
    *,
    by: lines.By = "network",
    baseline: str = BASELINE,
    ci: float | None = 0.95,
    **select: Any,
) -> alt.FacetChart:
    """Speed-up over a baseline by batch size, one panel per network, one line per compiler (the paper's figure 6).

    Columns whose timing contract differs from the baseline's have no line; the subtitle explains why.

    Parameters
    ----------
    data, by, ci, **select
        As for `throughput`.
    baseline
        The compiler whose speed-up is 1.

    Raises
    ------
    MetricError
        There is no such baseline.
    UnknownNameError, UsageError
        As for `throughput`.
    """
    frame = rows.build_rows(
        data, rows.wrap_metric(partial(metrics.speedup, baseline=baseline, unlike="mask"), ci), select
    )
    frame = rows.drop_baseline(frame, baseline)
    spec = lines.Lines(frame=frame, x="batch_size", value=f"speed-up over {baseline}", reference=1, by=by)
    chart, remarks = lines.draw(spec)
    text = f"Speed-up over {baseline} by batch size"
    title = captions.build_title(text, data, frame, remarks, against=["compiler"], baseline=baseline, ci=ci)
    return lines.finish(chart, title)
