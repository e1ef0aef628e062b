"""Batch scaling resilience by batch size: the paper's figures 9 and 11."""

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
def bsr(
    data: Data,
    *,
    by: lines.By = "network",
    baseline: str = BASELINE,
    ci: float | None = 0.95,
    **select: Any,
) -> alt.FacetChart:
    """Batch scaling resilience by batch size, one panel per network, one line per compiler (the paper's figures 9, 11).

    Below 1, a compiler loses more than the baseline when the batch grows.

    Parameters
    ----------
    data
        With the baseline, batch size 1 and another.
    by, baseline, ci, **select
        As for `speedup`.

    Raises
    ------
    MetricError
        There is no such baseline, or no batch size 1.
    UnknownNameError, UsageError
        As for `throughput`.
    """
    frame = rows.build_rows(data, rows.wrap_metric(partial(metrics.bsr, baseline=baseline, unlike="mask"), ci), select)
    frame = rows.drop_baseline(frame, baseline)
    chart, remarks = lines.draw(lines.Lines(frame=frame, x="batch_size", value="BSR", reference=1, zero=False, by=by))
    text = f"Batch scaling resilience: ASE over that of {baseline}"
    title = captions.build_title(text, data, frame, remarks, against=["compiler"], baseline=baseline, ci=ci)
    return lines.finish(chart, title)
