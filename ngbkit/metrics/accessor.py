"""The metrics at hand on every dataset and tree: ``ds.ngb.bsr()``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import xarray as xr

from ngbkit.dataset import nodes
from ngbkit.errors import MetricError
from ngbkit.metrics import labelled
from ngbkit.storage import Data

if TYPE_CHECKING:
    import pandas as pd

Labelled = xr.DataArray | xr.DataTree


class Metrics:
    """The metrics of `ngbkit.metrics` as methods.

    On a tree each gives a tree of its results, without the nodes that lack what the metric is relative to; where all
    lack it, the `MetricError` of the first is raised. Select afterwards, so that the baseline is there:
    ``ds.ngb.bsr().sel(compiler="openvino", batch_size=8)``.
    """

    def __init__(self, data: Data) -> None:
        self._data = data

    def throughput(self) -> Labelled:
        """See `ngbkit.metrics.throughput`."""
        return _each(labelled.throughput, self._data)

    def speedup(self) -> Labelled:
        """See `ngbkit.metrics.speedup`."""
        return _each(labelled.speedup, self._data)

    def rtr(self, *, tied: bool = True) -> Labelled:
        """See `ngbkit.metrics.rtr`."""
        return _each(labelled.rtr, self._data, tied=tied)

    def ase(self, *, tied: bool = True) -> Labelled:
        """See `ngbkit.metrics.ase`."""
        return _each(labelled.ase, self._data, tied=tied)

    def bsr(self) -> Labelled:
        """See `ngbkit.metrics.bsr`."""
        return _each(labelled.bsr, self._data)

    def depth_slope(self, dim: str = "depth") -> Labelled:
        """See `ngbkit.metrics.depth_slope`."""
        return _each(labelled.depth_slope, self._data, dim=dim)

    def retention(self, dim: str = "depth") -> Labelled:
        """See `ngbkit.metrics.retention`."""
        return _each(labelled.retention, self._data, dim=dim)

    def tcr(self, *, raw_bytes: float | xr.DataArray, compressed_bytes: float | xr.DataArray) -> Labelled:
        """See `ngbkit.metrics.tcr`."""
        return _each(labelled.tcr, self._data, raw_bytes=raw_bytes, compressed_bytes=compressed_bytes)

    def summary(self) -> Data:
        """See `ngbkit.metrics.summary`."""
        data = self._data
        return labelled.summary(data) if isinstance(data, xr.Dataset) else _over(data, labelled.summary)

    def failures(self) -> pd.DataFrame:
        """See `ngbkit.metrics.failures`; the rows of all nodes of a tree."""
        import pandas as pd

        return pd.concat([labelled.failures(node) for node in nodes(self._data).values()], ignore_index=True)


def _each(metric: Callable[..., xr.DataArray], data: Data, **arguments: Any) -> Labelled:
    if isinstance(data, xr.Dataset):
        return metric(data, **arguments)
    return _over(data, lambda node: metric(node, **arguments).to_dataset())


def _over(tree: xr.DataTree, metric: Callable[[xr.Dataset], xr.Dataset]) -> xr.DataTree:
    found: dict[str, xr.Dataset] = {}
    lacking: list[MetricError] = []
    for path, node in nodes(tree).items():
        try:
            found[path] = metric(node)
        except MetricError as error:
            lacking.append(error)
    if lacking and not found:
        raise lacking[0]
    return xr.DataTree.from_dict(found)


for register in (xr.register_dataset_accessor, xr.register_datatree_accessor):
    register("ngb")(Metrics)  # type: ignore[no-untyped-call]  # xarray has not annotated them
