"""Absolute throughput by batch size: the paper's figure 5."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ngbkit import metrics
from ngbkit.dataset.storage import Data
from ngbkit.figures import captions, lines, provenance, rows

if TYPE_CHECKING:
    import altair as alt


@provenance.traced
def throughput(data: Data, *, by: lines.By = "network", ci: float | None = 0.95, **select: Any) -> alt.FacetChart:
    """Throughput by batch size, one panel per network, one line per compiler (the paper's figure 5).

    Networks of one family form a column, the smallest first. A trial without a result is a mark at the bottom of its
    panel, whose shape shows its status.

    Parameters
    ----------
    data
        The dataset or tree of a run.
    by
        The panels: one per ``"network"``, with a line per compiler; or one per ``"compiler"``, with a line per network.
    ci
        The probability that the intervals cover; None draws none. A dataset without samples has none either.
    **select
        By dim, the label or the labels to draw: ``compiler=["identity", "tvm"], batch_size=8``.

    Raises
    ------
    UnknownNameError
        The dataset lacks a selected dim or label.
    UsageError
        The selection is empty, `by` is invalid, or `ci` is not a probability.
    """
    frame = rows.build_rows(data, rows.wrap_metric(metrics.throughput, ci), select)
    chart, remarks = lines.draw(lines.Lines(frame=frame, x="batch_size", value="throughput (samples/s)", by=by))
    return lines.finish(
        chart, captions.build_title("Throughput (samples/s) by batch size", data, frame, remarks, ci=ci, absolute=True)
    )
