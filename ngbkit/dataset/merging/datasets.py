"""Merges datasets and trees into one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import xarray as xr

from ngbkit.dataset.merging.attributes import merge_attributes, merge_sweeps
from ngbkit.dataset.merging.parts import cluster_parts, split_parts
from ngbkit.dataset.merging.trials import merge_cluster
from ngbkit.dataset.merging.variants import split_variants
from ngbkit.dataset.schema import explain_damage
from ngbkit.dataset.storage import Data
from ngbkit.workloads.base import FactorValue


@explain_damage
def merge(*data: Data | Iterable[Data], variant: Sequence[FactorValue] | None = None) -> Data:
    """Merge the datasets of several runs: other devices, networks, compilers, batch sizes, factors, variants.

    Each trial is copied whole from one dataset, with its samples, rounds, contract and status. A measurement or a
    failure replaces ``pending``; ``predicted`` becomes ``pending``, since the prediction ignored the other datasets. A
    cell of the common grid that no run requested has an empty status. Merging a run with itself changes nothing.
    Rounds keep their numbers. The anchor of a group is from the run of its `identity`.

    Compilers of one group from different runs were not interleaved: drift between runs affects their ratios, and is not
    in their intervals.

    Parameters
    ----------
    *data
        Datasets and trees, or lists of them, or selections.
    variant
        A label of each dataset, for iterations of one sweep: a dim ``variant`` tells their equal trials apart, as a
        factor of every network. Each variant has its own baseline. What compares two variants allows for the drift of
        the machine between their runs (`ngbkit.metrics.drift`).

    Returns
    -------
    xarray.Dataset or xarray.DataTree
        Every dim has all labels, in the order of the datasets; numbers are sorted if they are in each dataset. Networks
        whose factors differ are nodes of a tree, as in `ngbkit.dataset.assemble`: two grids are joined if their factors
        have the same names, and they share the path, all values of the factors or a network.

        The attributes ``environments`` and ``facts`` describe the devices and networks of the result; ``run_id`` lists
        all runs; ``sweep`` has all labels, with the settings of the latest run, and ``sweeps`` the sweep of each run,
        if they differ. Any other attribute is kept if no two datasets disagree.

    Raises
    ------
    UsageError
        Two datasets measured one trial; a device's label belongs to two devices, or to one whose libraries have
        changed; a name belongs to two networks; there are not as many variants as datasets; or an argument is not the
        dataset of a run.

    Examples
    --------
    >>> import ngbkit
    >>> ngbkit.merge(ngbkit.load("laptop.nc"), ngbkit.load("orin.nc")).ngb.speedup()  # doctest: +SKIP
    >>> ngbkit.merge(it1, it2, variant=["it1", "it2"]).ngb.plot.throughput()  # doctest: +SKIP
    """
    groups = (item if isinstance(item, (list, tuple, Iterator)) else [item] for item in data)
    sources = list(chain.from_iterable(groups))
    parts = split_parts(sources) if variant is None else split_variants(sources, variant)
    attrs = merge_attributes(parts)
    datasets = {path: merge_cluster(cluster) for path, cluster in cluster_parts(parts).items()}
    attrs |= merge_sweeps(parts, list(datasets.values()))
    nodes = {path: dataset.assign_attrs(attrs) for path, dataset in datasets.items()}
    return nodes.popitem()[1] if len(nodes) == 1 else xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs), **nodes})
