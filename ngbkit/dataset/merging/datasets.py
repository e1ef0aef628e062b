"""Merges datasets and trees into one, with the devices, networks, runs and sweeps that its attributes describe."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations
from typing import Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import factor_dims
from ngbkit.dataset.merging.parts import FACTS, LABELS, Part, build_conflict_error, cluster_parts, split_parts
from ngbkit.dataset.merging.trials import merge_cluster, unite
from ngbkit.dataset.schema import explain_damage
from ngbkit.dataset.storage import Data
from ngbkit.errors import UsageError
from ngbkit.hardware.environment import find_differences
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
    attrs = _merge_attributes(parts)
    datasets = {path: merge_cluster(cluster) for path, cluster in cluster_parts(parts).items()}
    attrs |= _merge_sweeps(parts, list(datasets.values()))
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


def _merge_attributes(parts: Sequence[Part]) -> dict[str, Any]:
    """The attributes without the sweeps: those without conflict, and the union of runs, environments and facts."""
    values = _gather(part.attrs for part in parts)
    attrs = {
        name: first
        for name, (first, *others) in values.items()
        if all(np.array_equal(first, other) for other in others)
    }
    for name in {"run_id", "ngbkit_version"} & {*values}:
        attrs[name] = ", ".join(sorted(_split_names(values[name])))
    if "created" in values:
        attrs["created"] = max(values["created"])
    by_age = sorted(parts, key=_get_age)
    for name, merge in (("environments", _merge_environments), ("facts", _merge_facts)):
        if name in values:
            attrs[name] = json.dumps(merge(by_age))
    return attrs


def _merge_sweeps(parts: Sequence[Part], datasets: Sequence[xr.Dataset]) -> dict[str, str]:
    """``sweep``, with every label of the datasets; and ``sweeps``, those of all runs, unless they equal it."""
    sweeps: dict[str, dict[str, Any]] = {}
    networks: dict[str, dict[str, Any]] = {}
    latest: dict[str, Any] = {}
    for part in sorted(parts, key=_get_age):
        latest = part.load_json("sweep") or latest
        for sweep in part.load_json("sweeps") or [part.load_json("sweep")]:
            sweeps |= {json.dumps(sweep, sort_keys=True): sweep} if sweep else {}
        by_name = {network["name"]: network for network in part.load_json("sweep").get("workloads", [])}
        names = part.map_labels("workload").items()
        networks |= {label: {**by_name[name], "name": label} for label, name in names if name in by_name}
    if not latest:
        return {}
    labels = {dim: unite(dataset[dim].values.tolist() for dataset in datasets) for dim in LABELS}
    factors = {
        label: {name: dataset[name].values.tolist() for name in factor_dims(dataset)}
        for dataset in datasets
        for label in dataset["workload"].values.tolist()
    }
    merged = {
        **latest,
        "workloads": [_update_factors(networks[label], factors[label]) for label in factors if label in networks],
        "compilers": labels["compiler"],
        "batch_sizes": labels["batch_size"],
        "factors": {
            name: unite(lists) for name, lists in _gather(sweep["factors"] for sweep in sweeps.values()).items()
        },
        "devices": labels["device"],
    }
    requested = list(sweeps.values())
    return {"sweep": json.dumps(merged), **({"sweeps": json.dumps(requested)} if requested != [merged] else {})}


def _update_factors(network: dict[str, Any], factors: dict[str, list[Any]]) -> dict[str, Any]:
    """A network of a sweep with all values that its factors have in the merged dataset."""
    return {**network, "factors": {name: factors.get(name, values) for name, values in network["factors"].items()}}


def _gather(mappings: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Gather the values that several mappings have under each name."""
    values: dict[str, list[Any]] = {}
    for name, value in chain.from_iterable(mapping.items() for mapping in mappings):
        values.setdefault(name, []).append(value)
    return values


def _get_age(part: Part) -> tuple[str, ...]:
    """A sort key, the latest run last, since run ids begin with the time; the rest makes the order deterministic."""
    latest = max(_split_names([part.attrs.get("run_id", "")]), default="")
    return latest, *(str(part.attrs.get(name, "")) for name in ("created", "sweep", "environments", "facts"))


def _split_names(texts: Iterable[Any]) -> set[str]:
    return {name for text in texts for name in str(text).split(", ") if name}


def _merge_environments(parts: Sequence[Part]) -> dict[str, Any]:
    """The environment of each device: the values of its latest session, else of an earlier one."""
    sessions: dict[str, list[dict[str, Any]]] = {}
    for part in parts:
        environments = part.load_json("environments")
        for label, name in part.map_labels("device").items():
            if name in environments and environments[name] not in sessions.setdefault(label, []):
                sessions[label].append(environments[name])
    merged: dict[str, Any] = {}
    for label, environments in sessions.items():
        for earlier, later in combinations(environments, 2):
            if differences := find_differences(earlier, later):
                raise UsageError(
                    f"{label!r} is not the same device in all datasets, or not in the same state: "
                    f"{'; '.join(differences)}. Rename one of the two by .assign_coords(device=[…]) before the merge."
                )
        for environment in environments:
            nonempty = {key: value for key, value in environment.items() if value not in (None, "", {})}
            merged[label] = {**environment, **merged.get(label, {}), **nonempty}
    return merged


def _merge_facts(parts: Sequence[Part]) -> dict[str, Any]:
    """The facts of each network, by `facts_key`; for those that vary between devices, the latest run counts."""
    merged: dict[str, Any] = {}
    for part in parts:
        labels = {name: label for label, name in part.map_labels("workload").items()}
        for key, facts in part.load_json("facts").items():
            name, factors = json.loads(key)
            if name not in labels:
                continue
            network = merged.setdefault(facts_key(labels[name], factors), {})
            for fact in FACTS:
                if None not in (network.get(fact), facts.get(fact)) and network[fact] != facts[fact]:
                    raise build_conflict_error(fact, {"workload": labels[name], **factors})
            network |= {fact: value for fact, value in facts.items() if value is not None or fact not in network}
    return merged
