"""Merges datasets and trees into one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import xarray as xr

from ngbkit.dataset.merging.attributes import merge_attributes, merge_sweeps
from ngbkit.dataset.merging.parts import Part, cluster_parts, split_parts
from ngbkit.dataset.merging.trials import merge_cluster
from ngbkit.dataset.schema import explain_damage
from ngbkit.dataset.storage import Data
from ngbkit.errors import UsageError
from ngbkit.sweep.conversion import to_factors
from ngbkit.sweep.trials import facts_key
from ngbkit.workloads.base import FactorValue

_VARIANT = "variant"


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
    parts = split_parts(sources) if variant is None else _split_variants(sources, variant)
    attrs = merge_attributes(parts)
    datasets = {path: merge_cluster(cluster) for path, cluster in cluster_parts(parts).items()}
    attrs |= merge_sweeps(parts, list(datasets.values()))
    nodes = {path: dataset.assign_attrs(attrs) for path, dataset in datasets.items()}
    return nodes.popitem()[1] if len(nodes) == 1 else xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs), **nodes})


def _split_variants(datasets: Sequence[Any], labels: Sequence[FactorValue]) -> list[Part]:
    """Split datasets and trees into their grids, each labelled by the variant that it is."""
    checked = to_factors({_VARIANT: labels})[_VARIANT]
    if len(checked) != len(datasets):
        raise UsageError(
            f"invalid variant: got {len(checked)} labels for {len(datasets)} datasets; expected as many. Name each "
            'dataset once: merge(it1, it2, variant=["it1", "it2"]).'
        )
    return [part for data, label in zip(datasets, checked, strict=True) for part in _label(split_parts([data]), label)]


def _label(parts: Sequence[Part], label: FactorValue) -> Iterator[Part]:
    """Yield the parts of a dataset with the label as the only value of a further factor."""
    for part in parts:
        if _VARIANT in part.dataset.variables:
            values = ", ".join(map(str, part.list_labels(_VARIANT)))
            raise UsageError(
                f"invalid variant: got a dataset that has a variant already ({values}); expected datasets without it. "
                "Merge it with the others without variant=, if its labels differ from theirs."
            )
        dims = (*part.dims[:2], _VARIANT, *part.dims[2:])
        dataset = part.dataset.expand_dims({_VARIANT: [label]}).transpose(*dims, "repeat", missing_dims="ignore")
        yield replace(part, dims=dims, dataset=dataset, attrs=dict(part.attrs) | _label_attributes(part, label))


def _label_attributes(part: Part, label: FactorValue) -> dict[str, str]:
    """Add the factor to the networks and the facts that the attributes describe."""
    attrs: dict[str, Any] = {}
    if sweep := part.load_json("sweep"):
        attrs["sweep"] = _label_sweep(sweep, label)
    if sweeps := part.load_json("sweeps"):
        attrs["sweeps"] = [_label_sweep(sweep, label) for sweep in sweeps]
    if facts := part.load_json("facts"):
        names = ((*json.loads(key), value) for key, value in facts.items())
        attrs["facts"] = {facts_key(name, {**factors, _VARIANT: label}): value for name, factors, value in names}
    return {name: json.dumps(value) for name, value in attrs.items()}


def _label_sweep(sweep: dict[str, Any], label: FactorValue) -> dict[str, Any]:
    workloads = [
        {**each, "takes": [*each["takes"], _VARIANT], "factors": {**each["factors"], _VARIANT: [label]}}
        for each in sweep["workloads"]
    ]
    return {**sweep, "workloads": workloads, "factors": {**sweep["factors"], _VARIANT: [label]}}
