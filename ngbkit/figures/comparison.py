"""Two runs of one sweep and their chart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ngbkit.dataset.storage import Data
from ngbkit.metrics import comparison

if TYPE_CHECKING:
    import altair as alt


class ChartedComparison(comparison.Comparison):
    """Two runs of one sweep, side by side, with a chart."""

    def plot(self) -> alt.LayerChart:
        """Draw both runs: see `ngbkit.figures.charts.changes`."""
        from ngbkit.figures.charts.changes import changes

        return changes(self)


def compare(first: Data, second: Data, metric: str = "speedup") -> ChartedComparison:
    """See `ngbkit.metrics.comparison.compare`."""
    return ChartedComparison(**vars(comparison.compare(first, second, metric)))
