"""Absolute scaling efficiency by batch size: the paper's figure 8."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ngbkit import metrics
from ngbkit.dataset.storage import Data
from ngbkit.figures import captions, lines, provenance, rows

if TYPE_CHECKING:
    import altair as alt


@provenance.traced
def ase(data: Data, *, by: lines.By = "network", ci: float | None = 0.95, **select: Any) -> alt.FacetChart:
    """Absolute scaling efficiency by batch size, one panel per network, one line per compiler (the paper's figure 8).

    At 1, a batch takes as long as its samples one by one.

    Parameters
    ----------
    data
        With batch size 1 and another.
    by, ci, **select
        As for `throughput`.

    Raises
    ------
    MetricError
        There is no batch size 1.
    UnknownNameError, UsageError
        As for `throughput`.
    """
    frame = rows.build_rows(data, rows.wrap_metric(partial(metrics.ase, unlike="mask"), ci), select)
    chart, remarks = lines.draw(lines.Lines(frame=frame, x="batch_size", value="ASE", reference=1, by=by))
    text = "Absolute scaling efficiency: T(b) / (b T(1))"
    return lines.finish(chart, captions.build_title(text, data, frame, remarks, against=["batch_size"], ci=ci))
