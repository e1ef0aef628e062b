"""Speed-up by batch size: the paper's figure 6."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ngbkit import metrics
from ngbkit.figures import captions, lines, rows
from ngbkit.storage import Data
from ngbkit.sweep import BASELINE

if TYPE_CHECKING:
    import altair as alt


def speedup(data: Data, *, ci: float | None = 0.95, **select: Any) -> alt.FacetChart:
    """Speed-up over identity by batch size, a panel a network, a line a compiler (the paper's figure 6).

    Columns of another timing contract than identity's have no line, and the subtitle says why.

    Parameters
    ----------
    data, ci, **select
        As for `throughput`.

    Raises
    ------
    MetricError
        There is no `identity`.
    UnknownNameError, UsageError
        As for `throughput`.
    """
    frame = rows.rows(data, rows.of_metric(partial(metrics.speedup, unlike="mask"), ci), select)
    frame = rows.without_baseline(frame)
    asked = lines.Lines(frame=frame, x="batch_size", value=f"speed-up over {BASELINE}", reference=1)
    chart, remarks = lines.draw(asked)
    title = captions.title(f"Speed-up over {BASELINE} by batch size", data, frame, remarks, against=["compiler"])
    return lines.finished(chart, title)
