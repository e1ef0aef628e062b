"""Geometric means of a metric over groups of networks, such as families."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import describe
from ngbkit.dataset.long_form import list_labels
from ngbkit.errors import MetricError, UsageError
from ngbkit.metrics.contracts import Unlike
from ngbkit.metrics.draws import Sampler, estimate
from ngbkit.metrics.metric import Result, find_metric, load_frame_metrics
from ngbkit.sweep.column import BASELINE
from ngbkit.workloads.paper import find_family

Groups = Callable[[str], str] | Mapping[str, str]
"""The group of each network: a function of its label, or a mapping; a network that it lacks is left out."""


def mean(
    dataset: xr.Dataset,
    metric: str = "speedup",
    *,
    by: Groups = find_family,
    baseline: str = BASELINE,
    ci: float | None = None,
    unlike: Unlike = "error",
) -> Result:
    """The geometric mean of a metric over the networks of each group.

    Each mean is over the networks of its group that have a result in that column, at that batch size. The coordinate
    ``networks`` is their number: where it differs, so do the networks behind two means.

    Parameters
    ----------
    dataset
        With the reference of the metric.
    metric
        A metric of each trial: ``"speedup"``, ``"throughput"``, ``"rtr"``, ``"ase"``, ``"bsr"`` and others.
    by
        The group of each network: a function of its label, or a mapping; a network that a mapping lacks is left out.
        Default: its family, as the figures have it.
    baseline
        As for `speedup`: the reference column of a metric that compares compilers.
    ci
        As for `throughput`. The interval is of the noise of the measurements, not of the choice of networks.
    unlike
        As for `speedup`.

    Returns
    -------
    xarray.DataArray or xarray.Dataset
        The metric, with the groups along ``workload``, in the order of their first networks.

    Raises
    ------
    UnknownNameError
        There is no such metric.
    MetricError
        No network has a group, or as for the metric.
    UsageError
        As for the metric.
    """
    record = find_metric(metric, load_frame_metrics())
    members = _group(list_labels(dataset, "workload"), by)
    if "workload" not in dataset.dims:
        dataset = dataset.expand_dims("workload")
    options = {"baseline": baseline} if "baseline" in record.signature.parameters else {}
    if baseline != BASELINE and not options:
        raise UsageError(f"invalid baseline: got {baseline!r}, but {metric} has none. Leave it out.")
    data = record.prepare(dataset, unlike=unlike, baseline=baseline)
    compute_each = partial(record.compute, **options)
    present = compute_each(data, None).notnull()

    def compute(part: xr.Dataset, sampler: Sampler | None) -> xr.DataArray:
        values = compute_each(part, sampler)
        logarithms: xr.DataArray = xr.apply_ufunc(np.log, values)
        # Without a network that has no replicates, or that is not conclusive, it would be the mean of other networks.
        complete = ~(present & values.isnull())
        means: xr.DataArray = xr.apply_ufunc(np.exp, _reduce(logarithms, members, xr.DataArray.mean))
        complete_means = means.where(_reduce(complete, members, xr.DataArray.all))
        return complete_means.transpose(*(_GROUP if dim == "workload" else dim for dim in values.dims))

    description = (metric, record.units, f"geometric mean of the {record.describe(**options)}")
    result = estimate(compute, data, ci, description, along="workload")
    networks = _reduce(present, members, xr.DataArray.sum)
    networks.attrs = describe("1", "number of networks behind the mean")
    return result.assign_coords(networks=networks).rename({_GROUP: "workload"})


# The dim of the groups, until it replaces that of their networks.
_GROUP = "group"


def _group(networks: list[str], by: Groups) -> dict[str, list[str]]:
    """The networks of each group."""
    find = by if callable(by) else dict(by).get
    members: dict[str, list[str]] = {}
    for network in networks:
        if (group := find(network)) is not None:
            members.setdefault(str(group), []).append(network)
    if not members:
        raise MetricError(f"mean() has no group for any of {', '.join(networks)}. Add them to `by`.")
    return members


def _reduce(
    values: xr.DataArray, members: Mapping[str, list[str]], reduce: Callable[..., xr.DataArray]
) -> xr.DataArray:
    """The values of the networks of each group, reduced to one."""
    parts = [reduce(values.sel(workload=networks), "workload") for networks in members.values()]
    return xr.concat(parts, _GROUP).assign_coords({_GROUP: list(members)})
