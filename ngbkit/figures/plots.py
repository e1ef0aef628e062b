"""The figures as methods of every dataset and tree: ``ds.ngb.plot.speedup()``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ngbkit import figures
from ngbkit.dataset import schema
from ngbkit.dataset.storage import Data
from ngbkit.errors import UsageError
from ngbkit.figures.lines import By
from ngbkit.metrics.economy import Cache
from ngbkit.metrics.rankings.networks import By as Networks
from ngbkit.sweep.trials import BASELINE

if TYPE_CHECKING:
    import altair as alt


@schema.explain_missing
class Plots:
    """The figures of `ngbkit.figures` as methods.

    Besides its own parameters, each accepts the labels to draw by the name of their dim:
    ``ds.ngb.plot.speedup(compiler=["openvino", "tvm"], batch_size=8)``. Their reference need not be among them.
    """

    def __init__(self, data: Data) -> None:
        self._data = data

    def ase(self, *, by: By = "network", ci: float | None = 0.95, **select: Any) -> alt.FacetChart:
        """See `ngbkit.figures.ase`: the paper's figure 8."""
        return figures.ase(self._data, by=by, ci=ci, **select)

    def break_even(self, *, cache: Cache = "cold", ci: float | None = 0.95, **select: Any) -> alt.FacetChart:
        """See `ngbkit.figures.break_even`."""
        return figures.break_even(self._data, cache=cache, ci=ci, **select)

    def bsr(
        self, *, by: By = "network", baseline: str = BASELINE, ci: float | None = 0.95, **select: Any
    ) -> alt.FacetChart:
        """See `ngbkit.figures.bsr`: the paper's figures 9 and 11."""
        return figures.bsr(self._data, by=by, baseline=baseline, ci=ci, **select)

    def capacity(self, deadline: str | float | None = None, **keywords: Any) -> alt.FacetChart:
        """See `ngbkit.figures.capacity`: what `ds.ngb.capacity` has measured."""
        if deadline is None:
            raise UsageError("invalid deadline: got none; expected a time such as '50ms'. Give one to capacity().")
        return figures.capacity(self._data, deadline=deadline, **keywords)

    def cpu(self, **select: Any) -> alt.VConcatChart:
        """See `ngbkit.figures.cpu`: the paper's figure 12."""
        return figures.cpu(self._data, **select)

    def depth(
        self, *, factor: str = "depth", baseline: str = BASELINE, ci: float | None = 0.95, **select: Any
    ) -> alt.FacetChart:
        """See `ngbkit.figures.depth`: the paper's figure 7."""
        return figures.depth(self._data, factor=factor, baseline=baseline, ci=ci, **select)

    def frontier(self, *, deadline: str | float | None = None, quantile: float = 0.99, **select: Any) -> alt.FacetChart:
        """See `ngbkit.figures.frontier`."""
        return figures.frontier(self._data, deadline=deadline, quantile=quantile, **select)

    def heatmap(self, *, factor: str = "width", ci: float | None = 0.95, **select: Any) -> alt.FacetChart:
        """See `ngbkit.figures.heatmap`: the paper's figure 10."""
        return figures.heatmap(self._data, factor=factor, ci=ci, **select)

    def latency(self, **select: Any) -> alt.FacetChart:
        """See `ngbkit.figures.latency`."""
        return figures.latency(self._data, **select)

    def networks(self, *, by: Networks = "best", ci: float = 0.95, **select: Any) -> alt.FacetChart:
        """See `ngbkit.figures.networks`."""
        return figures.networks(self._data, by=by, ci=ci, **select)

    def overview(self) -> alt.ConcatChart:
        """See `ngbkit.figures.overview`."""
        return figures.overview(self._data)

    def reversals(
        self, *, probability: float = 0.95, ci: float | None = 0.95, untuned: bool = False, **select: Any
    ) -> alt.FacetChart:
        """See `ngbkit.figures.reversals`: the paper's figure 1."""
        return figures.reversals(self._data, probability=probability, ci=ci, untuned=untuned, **select)

    def roofline(self, **select: Any) -> alt.FacetChart:
        """See `ngbkit.figures.roofline`."""
        return figures.roofline(self._data, **select)

    def speedup(
        self, *, by: By = "network", baseline: str = BASELINE, ci: float | None = 0.95, **select: Any
    ) -> alt.FacetChart:
        """See `ngbkit.figures.speedup`: the paper's figure 6."""
        return figures.speedup(self._data, by=by, baseline=baseline, ci=ci, **select)

    def status(self, **select: Any) -> alt.FacetChart:
        """See `ngbkit.figures.status`."""
        return figures.status(self._data, **select)

    def throughput(self, *, by: By = "network", ci: float | None = 0.95, **select: Any) -> alt.FacetChart:
        """See `ngbkit.figures.throughput`: the paper's figure 5."""
        return figures.throughput(self._data, by=by, ci=ci, **select)

    def traces(self, **select: Any) -> alt.FacetChart:
        """See `ngbkit.figures.traces`."""
        return figures.traces(self._data, **select)
