"""Datasets and trees in, one dataset or tree out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import xarray as xr

from ngbkit.dataset.merging.attributes import attributes, sweeps
from ngbkit.dataset.merging.parts import clusters, parts_of
from ngbkit.dataset.merging.trials import merged
from ngbkit.dataset.storage import Data


def merge(*data: Data | Iterable[Data]) -> Data:
    """The datasets of several runs as one: of other devices, networks, compilers, batch sizes, factors.

    A trial comes whole from one of them, its samples, rounds, contract and status together; ``pending`` gives way to
    what was measured, and to a failure; what was ``predicted`` is ``pending`` again, since the prediction knew nothing
    of the others. A trial that none was asked for, which the grid of all labels has nonetheless, has no status, an
    empty text. The same run twice is that run once.
    Rounds keep their numbers. An anchor is that of the run whose `identity` the group has.

    Compilers of one group that are of different runs did not take turns: what drifted from run to run is in their
    ratios, and in no interval.

    Parameters
    ----------
    *data
        Datasets and trees, or lists of them, whole or selected from.

    Returns
    -------
    xarray.Dataset or xarray.DataTree
        Every dim has the labels of all, in the order in which they came; numbers in their own where each dataset had
        them so. Networks whose factors differ are nodes of a tree, as in `ngbkit.dataset.assemble`: grids become one
        where the factors have the same names, and the path, all values of the factors or a network is the same.

        Of the attributes, ``environments`` and ``facts`` are of the devices and the networks that are there; ``run_id``
        names every run; ``sweep`` asks for all that is there, with the settings of the latest run, and ``sweeps`` holds
        what each run asked for, where that differs; any other stays where no dataset has another value for it.

    Raises
    ------
    UsageError
        Two have measured one trial; a device's label is of two devices, or of one whose libraries have changed; a name
        is of two networks; or what came is no dataset of a run.

    Examples
    --------
    >>> import ngbkit
    >>> ngbkit.merge(ngbkit.load("laptop.nc"), ngbkit.load("orin.nc")).ngb.speedup()  # doctest: +SKIP
    """
    parts = parts_of(chain.from_iterable(one if isinstance(one, (list, tuple, Iterator)) else [one] for one in data))
    attrs = attributes(parts)
    datasets = {path: merged(cluster) for path, cluster in clusters(parts).items()}
    attrs |= sweeps(parts, list(datasets.values()))
    whole = {path: dataset.assign_attrs(attrs) for path, dataset in datasets.items()}
    return whole.popitem()[1] if len(whole) == 1 else xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs), **whole})
