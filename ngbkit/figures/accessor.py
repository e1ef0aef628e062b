"""The metrics at hand on every dataset and tree: ``ds.ngb.bsr()``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import xarray as xr

from ngbkit.dataset.assembly import factor_dims, nodes
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError
from ngbkit.metrics import economy, factors, labelled, trials
from ngbkit.metrics.contracts import Unlike, UnlikeContractsError
from ngbkit.metrics.economy import Cache
from ngbkit.metrics.ranking import ranking
from ngbkit.metrics.reversals import reversals
from ngbkit.metrics.roofline import roofline
from ngbkit.sweep.trials import BASELINE

if TYPE_CHECKING:
    import pandas as pd

    from ngbkit.figures.plots import Plots

Labelled = xr.DataArray | xr.Dataset | xr.DataTree


class Metrics:
    """The metrics of `ngbkit.metrics` as methods.

    On a tree each gives a tree of its results, without the nodes that lack what the metric is relative to; where all
    lack it, the `MetricError` of the first is raised. Contracts that differ are an error in whatever node they are.
    Select afterwards, so that the baseline is there:
    ``ds.ngb.bsr().sel(compiler="openvino", batch_size=8)``.
    """

    def __init__(self, data: Data) -> None:
        self._data = data

    @property
    def plot(self) -> Plots:
        """The figures, as methods: ``ds.ngb.plot.speedup()``."""
        from ngbkit.figures.plots import Plots

        return Plots(self._data)

    def throughput(self, *, ci: float | None = None) -> Labelled:
        """See `ngbkit.metrics.throughput`."""
        return _each(labelled.throughput, self._data, ci=ci)

    def speedup(self, *, baseline: str = BASELINE, ci: float | None = None, unlike: Unlike = "error") -> Labelled:
        """See `ngbkit.metrics.speedup`."""
        return _each(labelled.speedup, self._data, baseline=baseline, ci=ci, unlike=unlike)

    def rtr(self, *, tied: bool = True, ci: float | None = None, unlike: Unlike = "error") -> Labelled:
        """See `ngbkit.metrics.rtr`."""
        return _each(labelled.rtr, self._data, tied=tied, ci=ci, unlike=unlike)

    def ase(self, *, tied: bool = True, ci: float | None = None, unlike: Unlike = "error") -> Labelled:
        """See `ngbkit.metrics.ase`."""
        return _each(labelled.ase, self._data, tied=tied, ci=ci, unlike=unlike)

    def bsr(self, *, baseline: str = BASELINE, ci: float | None = None, unlike: Unlike = "error") -> Labelled:
        """See `ngbkit.metrics.bsr`."""
        return _each(labelled.bsr, self._data, baseline=baseline, ci=ci, unlike=unlike)

    def depth_slope(self, dim: str = "depth", *, ci: float | None = None, unlike: Unlike = "error") -> Labelled:
        """See `ngbkit.metrics.depth_slope`."""
        return _each(factors.depth_slope, self._data, dim=dim, ci=ci, unlike=unlike)

    def retention(self, dim: str = "depth", *, ci: float | None = None, unlike: Unlike = "error") -> Labelled:
        """See `ngbkit.metrics.retention`."""
        return _each(factors.retention, self._data, dim=dim, ci=ci, unlike=unlike)

    def friction(
        self, dim: str = "width", *, tied: bool = True, ci: float | None = None, unlike: Unlike = "error"
    ) -> Labelled:
        """See `ngbkit.metrics.friction`."""
        return _each(factors.friction, self._data, dim=dim, tied=tied, ci=ci, unlike=unlike)

    def tcr(
        self,
        *,
        raw_bytes: float | xr.DataArray,
        compressed_bytes: float | xr.DataArray,
        ci: float | None = None,
    ) -> Labelled:
        """See `ngbkit.metrics.tcr`."""
        return _each(labelled.tcr, self._data, raw_bytes=raw_bytes, compressed_bytes=compressed_bytes, ci=ci)

    def break_even(self, *, cache: Cache = "cold", ci: float | None = None, unlike: Unlike = "error") -> Labelled:
        """See `ngbkit.metrics.break_even`."""
        return _each(economy.break_even, self._data, cache=cache, ci=ci, unlike=unlike)

    def ranking(self, *, unlike: Unlike = "error", untuned: bool = False) -> pd.DataFrame:
        """See `ngbkit.metrics.ranking`."""
        return ranking(self._data, unlike=unlike, untuned=untuned)

    def reversals(self, *, probability: float = 0.0, unlike: Unlike = "error", untuned: bool = False) -> pd.DataFrame:
        """See `ngbkit.metrics.reversals`; nodes of a tree are compared with one another."""
        return reversals(self._data, probability=probability, unlike=unlike, untuned=untuned)

    def roofline(self) -> Data:
        """See `ngbkit.metrics.roofline`."""
        return _each_dataset(roofline, self._data)

    def summary(self) -> Data:
        """See `ngbkit.metrics.summary`."""
        return _each_dataset(trials.summary, self._data)

    def undisturbed(self) -> Data:
        """See `ngbkit.metrics.undisturbed`."""
        return _each_dataset(trials.undisturbed, self._data)

    def failures(self) -> pd.DataFrame:
        """See `ngbkit.metrics.failures`; the rows of all nodes of a tree."""
        return _rows(trials.failures, self._data)

    def why(self) -> pd.DataFrame:
        """See `ngbkit.metrics.why`; the rows of all nodes of a tree."""
        return _rows(trials.why, self._data)


def _each(metric: Callable[..., xr.DataArray | xr.Dataset], data: Data, **arguments: Any) -> Labelled:
    if isinstance(data, xr.Dataset):
        return metric(data, **arguments)

    def found(node: xr.Dataset) -> xr.Dataset:
        values = metric(node, **arguments)
        return values.to_dataset() if isinstance(values, xr.DataArray) else values

    return _over(data, found)


def _each_dataset(metric: Callable[[xr.Dataset], xr.Dataset], data: Data) -> Data:
    return metric(data) if isinstance(data, xr.Dataset) else _over(data, metric)


def _rows(metric: Callable[[xr.Dataset], pd.DataFrame], data: Data) -> pd.DataFrame:
    import pandas as pd

    found = nodes(data).values()
    frame = pd.concat([metric(node) for node in found], ignore_index=True)
    first = dict.fromkeys(["workload", *(name for node in found for name in factor_dims(node))])
    return frame[[*(name for name in first if name in frame), *(name for name in frame if name not in first)]]


def _over(tree: xr.DataTree, metric: Callable[[xr.Dataset], xr.Dataset]) -> xr.DataTree:
    found: dict[str, xr.Dataset] = {}
    lacking: list[MetricError] = []
    for path, node in nodes(tree).items():
        try:
            found[path] = metric(node)
        except UnlikeContractsError:
            raise
        except MetricError as error:
            lacking.append(error)
    if lacking and not found:
        raise lacking[0]
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=tree.attrs), **found})


for register in (xr.register_dataset_accessor, xr.register_datatree_accessor):
    register("ngb")(Metrics)  # type: ignore[no-untyped-call]  # xarray has not annotated them
