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
    """Throughput by batch size, a panel a network, a line a compiler (the paper's figure 5).

    Networks of like families stand below each other, the smallest first. A trial without a result is drawn at the foot
    of its panel, in a shape that tells how it failed.

    Parameters
    ----------
    data
        What `ngbkit.dataset.assembly.assemble` gave.
    by
        What has a panel of its own: ``"network"``, with a line a compiler; or ``"compiler"``, with a line a network.
    ci
        The probability that the intervals are to cover; None draws none. A dataset without samples has none either.
    **select
        By dim, the label or the labels to draw: ``compiler=["identity", "tvm"], batch_size=8``.

    Raises
    ------
    UnknownNameError
        A dim or a label that the dataset does not have.
    UsageError
        Nothing is left to draw, `by` is neither of the two, or `ci` is not a probability.
    """
    frame = rows.rows(data, rows.of_metric(metrics.throughput, ci), select)
    chart, remarks = lines.draw(lines.Lines(frame=frame, x="batch_size", value="throughput (samples/s)", by=by))
    return lines.finished(chart, captions.title("Throughput (samples/s) by batch size", data, frame, remarks))
