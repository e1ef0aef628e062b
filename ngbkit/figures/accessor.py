"""The accessor `ds.ngb`: the metrics as methods of every dataset and tree."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import xarray as xr

from ngbkit.dataset import disturbance, schema
from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.environments import environments
from ngbkit.dataset.long_form import list_factors
from ngbkit.dataset.selection import select
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import MetricError, UnknownNameError
from ngbkit.figures.comparison import Comparison, compare
from ngbkit.metrics import economy, factors, frames, labelled, trials
from ngbkit.metrics.contracts import Unlike, UnlikeContractsError
from ngbkit.metrics.economy import Cache
from ngbkit.metrics.means import Groups, mean
from ngbkit.metrics.published import beside_paper
from ngbkit.metrics.rankings.front import front
from ngbkit.metrics.rankings.networks import By, compare_networks, network_ranking
from ngbkit.metrics.rankings.ranking import ranking, winners
from ngbkit.metrics.rankings.reversals import reversals
from ngbkit.metrics.roofline import roofline
from ngbkit.metrics.serving.capacities import Capacities
from ngbkit.metrics.serving.capacity import capacity
from ngbkit.metrics.serving.choices import Choices
from ngbkit.metrics.serving.deadlines import Per, choose
from ngbkit.metrics.tables import Table, compact
from ngbkit.sweep.trials import BASELINE
from ngbkit.workloads.paper import find_family

if TYPE_CHECKING:
    import pandas as pd

    from ngbkit.figures.plots import Plots

Rows = Literal["trials", "samples"]
Labelled = xr.DataArray | xr.Dataset | xr.DataTree


@schema.explain_missing
class Metrics:
    """The metrics of `ngbkit.metrics` as methods.

    On a tree, each returns a tree of results, without the nodes that lack the reference of the metric; if all lack it,
    the `MetricError` of the first is raised. Differing contracts are an error in any node. Select afterwards, so that
    the baseline is present: ``ds.ngb.bsr().sel(compiler="openvino", batch_size=8)``.
    """

    def __init__(self, data: Data) -> None:
        self._any_data = data  # xarray gives every dataset its `ngb`

    @property
    def _data(self) -> Data:
        return schema.require_measured(self._any_data)

    @property
    def _pooled(self) -> Data:
        return schema.require_distinct(self._data)

    @property
    def plot(self) -> Plots:
        """The figures, as methods: ``ds.ngb.plot.speedup()``."""
        from ngbkit.figures.plots import Plots

        return Plots(self._pooled)

    def throughput(self, *, ci: float | None = None) -> Labelled:
        """See `ngbkit.metrics.throughput`."""
        return _compute(labelled.throughput, self._data, ci=ci)

    def speedup(self, *, baseline: str = BASELINE, ci: float | None = None, unlike: Unlike = "error") -> Labelled:
        """See `ngbkit.metrics.speedup`."""
        return _compute(labelled.speedup, self._data, baseline=baseline, ci=ci, unlike=unlike)

    def rtr(self, *, tied: bool = True, ci: float | None = None, unlike: Unlike = "error") -> Labelled:
        """See `ngbkit.metrics.rtr`."""
        return _compute(labelled.rtr, self._data, tied=tied, ci=ci, unlike=unlike)

    def ase(self, *, tied: bool = True, ci: float | None = None, unlike: Unlike = "error") -> Labelled:
        """See `ngbkit.metrics.ase`."""
        return _compute(labelled.ase, self._data, tied=tied, ci=ci, unlike=unlike)

    def bsr(self, *, baseline: str = BASELINE, ci: float | None = None, unlike: Unlike = "error") -> Labelled:
        """See `ngbkit.metrics.bsr`."""
        return _compute(labelled.bsr, self._data, baseline=baseline, ci=ci, unlike=unlike)

    def depth_slope(self, dim: str = "depth", *, ci: float | None = None, unlike: Unlike = "error") -> Labelled:
        """See `ngbkit.metrics.depth_slope`."""
        return _compute(factors.depth_slope, self._data, dim=dim, ci=ci, unlike=unlike)

    def retention(self, dim: str = "depth", *, ci: float | None = None, unlike: Unlike = "error") -> Labelled:
        """See `ngbkit.metrics.retention`."""
        return _compute(factors.retention, self._data, dim=dim, ci=ci, unlike=unlike)

    def friction(
        self, dim: str = "width", *, tied: bool = True, ci: float | None = None, unlike: Unlike = "error"
    ) -> Labelled:
        """See `ngbkit.metrics.friction`."""
        return _compute(factors.friction, self._data, dim=dim, tied=tied, ci=ci, unlike=unlike)

    def tcr(
        self,
        *,
        raw_bytes: float | xr.DataArray,
        compressed_bytes: float | xr.DataArray,
        ci: float | None = None,
    ) -> Labelled:
        """See `ngbkit.metrics.tcr`."""
        return _compute(labelled.tcr, self._data, raw_bytes=raw_bytes, compressed_bytes=compressed_bytes, ci=ci)

    def break_even(self, *, cache: Cache = "cold", ci: float | None = None, unlike: Unlike = "error") -> Labelled:
        """See `ngbkit.metrics.break_even`."""
        return _compute(economy.break_even, self._data, cache=cache, ci=ci, unlike=unlike)

    def compare_networks(
        self, compiler: str | None = None, *, ci: float = LEVEL, unlike: Unlike = "error", untuned: bool = False
    ) -> pd.DataFrame:
        """See `ngbkit.metrics.compare_networks`: every pair of networks, and whether one is faster for sure."""
        return compare_networks(self._pooled, compiler, ci=ci, unlike=unlike, untuned=untuned)

    def network_ranking(
        self, by: By = "best", *, ci: float = LEVEL, unlike: Unlike = "error", untuned: bool = False
    ) -> pd.DataFrame:
        """See `ngbkit.metrics.network_ranking`: each network's probability of being the fastest."""
        return network_ranking(self._pooled, by, ci=ci, unlike=unlike, untuned=untuned)

    def capacity(self, deadline: str | float, **keywords: Any) -> Capacities:
        """See `ngbkit.metrics.capacity`, with its arguments: ``ds.ngb.capacity("50ms", compiler="openvino")``."""
        return capacity(self._pooled, deadline, **keywords)

    def ranking(self, *, unlike: Unlike = "error", untuned: bool = False) -> pd.DataFrame:
        """See `ngbkit.metrics.ranking`."""
        return ranking(self._pooled, unlike=unlike, untuned=untuned)

    def reversals(self, *, probability: float = 0.0, unlike: Unlike = "error", untuned: bool = False) -> pd.DataFrame:
        """See `ngbkit.metrics.reversals`; nodes of a tree are compared with one another."""
        return reversals(self._pooled, probability=probability, unlike=unlike, untuned=untuned)

    def roofline(self) -> Data:
        """See `ngbkit.metrics.roofline`."""
        return _map_nodes(roofline, self._data)

    def table(self, figure: str = "speedup", *, by: Groups | None = None, **select: Any) -> Table:
        """A metric or a variable with a row per network and batch size and a column per compiler, with its intervals.

        See `ngbkit.metrics.tables.compact`: `figure` is one of its figures, and labels are selected as for a figure:
        ``ds.ngb.table("bsr", compiler=["openvino"], batch_size=8)``. With `by`, rows are groups of networks.
        """
        return Table(compact(self._pooled, figure, by=by, select=select))

    def mean(
        self, metric: str = "speedup", *, by: Groups = find_family, ci: float | None = None, unlike: Unlike = "error"
    ) -> Labelled:
        """See `ngbkit.metrics.mean`."""
        return _compute(partial(mean, metric=metric), self._data, by=by, ci=ci, unlike=unlike)

    def winners(self, *, unlike: Unlike = "error", untuned: bool = False) -> pd.DataFrame:
        """See `ngbkit.metrics.winners`."""
        return winners(self._pooled, unlike=unlike, untuned=untuned)

    def front(self, size: str = "parameters") -> pd.DataFrame:
        """See `ngbkit.metrics.front`."""
        return front(self._pooled, size)

    def choose(
        self,
        deadline: str | float,
        quantile: float = 0.99,
        *,
        probability: float = 0.0,
        per: Per = "network",
        unlike: Unlike = "mask",
        untuned: bool = False,
        disturbed: bool = False,
    ) -> Choices:
        """See `ngbkit.metrics.choose`: ``ds.ngb.choose(deadline="50ms")``."""
        keywords: Any = {"probability": probability, "per": per, "unlike": unlike, "untuned": untuned}
        return choose(self._pooled, deadline, quantile, **keywords, disturbed=disturbed)

    def beside_paper(self, number: str, *, device: str = "xeon", on: str | None = None) -> pd.DataFrame:
        """See `ngbkit.metrics.beside_paper`: ``ds.ngb.beside_paper("VI")``."""
        return beside_paper(self._pooled, number, device=device, on=on)

    def compare(self, other: Data, metric: str = "speedup") -> Comparison:
        """See `ngbkit.figures.comparison.compare`: what changed from this run to the `other`."""
        return compare(self._pooled, schema.require_distinct(schema.require_measured(other)), metric)

    def sel(self, **labels: Any) -> Data:
        """See `ngbkit.dataset.selection.select`, which selects from a tree too."""
        return select(self._data, **labels)

    def environments(self) -> pd.DataFrame:
        """See `ngbkit.dataset.environments.environments`: the machine of each device."""
        return environments(self._data)

    def summary(self) -> Data:
        """See `ngbkit.metrics.summary`."""
        return _map_nodes(trials.summary, self._data)

    def undisturbed(self) -> Data:
        """See `ngbkit.metrics.undisturbed`."""
        return _map_nodes(disturbance.undisturbed, self._data)

    def settled(self) -> Labelled:
        """See `ngbkit.metrics.settled`."""
        return _compute(disturbance.settled, self._data)

    def to_dataframe(self, rows: Rows = "trials") -> pd.DataFrame:
        """The trials, one per row, with their metrics and all that was measured; or every ``"samples"``.

        See `ngbkit.metrics.frames.to_dataframe` and `ngbkit.metrics.frames.to_samples` for the columns and their units.
        """
        if rows not in frames.BUILDERS:
            raise UnknownNameError("rows", rows, frames.BUILDERS)
        return frames.BUILDERS[rows](self._pooled)

    def failures(self) -> pd.DataFrame:
        """See `ngbkit.metrics.failures`; the rows of all nodes of a tree."""
        return _concat_frames(trials.failures, self._pooled)

    def why(self) -> pd.DataFrame:
        """See `ngbkit.metrics.why`; the rows of all nodes of a tree."""
        return _concat_frames(trials.why, self._pooled)


def _compute(metric: Callable[..., xr.DataArray | xr.Dataset], data: Data, **arguments: Any) -> Labelled:
    if isinstance(data, xr.Dataset):
        return metric(data, **arguments)

    def compute(node: xr.Dataset) -> xr.Dataset:
        result = metric(node, **arguments)
        return result.to_dataset() if isinstance(result, xr.DataArray) else result

    return _map_nodes(compute, data)


def _concat_frames(metric: Callable[[xr.Dataset], pd.DataFrame], data: Data) -> pd.DataFrame:
    import pandas as pd

    frame = pd.concat([metric(node) for node in nodes(data).values()], ignore_index=True)
    first = [name for name in ("workload", *list_factors(data)) if name in frame]
    return frame[[*first, *(name for name in frame if name not in first)]]


def _map_nodes(metric: Callable[[xr.Dataset], xr.Dataset], data: Data) -> Data:
    if isinstance(data, xr.Dataset):
        return metric(data)
    results: dict[str, xr.Dataset] = {}
    problems: list[MetricError] = []
    for path, node in nodes(data).items():
        try:
            results[path] = metric(node)
        except UnlikeContractsError:
            raise
        except MetricError as error:
            problems.append(error)
    if problems and not results:
        raise problems[0]
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=data.attrs), **results})
