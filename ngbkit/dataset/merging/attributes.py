"""The attributes of merged datasets: devices, networks, runs and sweeps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import chain, combinations
from typing import Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import factor_dims
from ngbkit.dataset.merging.parts import FACTS, LABELS, Part, build_conflict_error
from ngbkit.dataset.merging.trials import unite
from ngbkit.errors import UsageError
from ngbkit.hardware.environment import find_differences
from ngbkit.sweep.trials import facts_key


def merge_attributes(parts: Sequence[Part]) -> dict[str, Any]:
    """The attributes without the sweeps: those without conflict, and the union of runs, environments and facts."""
    values: dict[str, list[Any]] = {}
    for name, value in chain.from_iterable(part.attrs.items() for part in parts):
        values.setdefault(name, []).append(value)
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


def merge_sweeps(parts: Sequence[Part], datasets: Sequence[xr.Dataset]) -> dict[str, str]:
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
        "factors": _unite_factors(sweep["factors"] for sweep in sweeps.values()),
        "devices": labels["device"],
    }
    requested = list(sweeps.values())
    return {"sweep": json.dumps(merged), **({"sweeps": json.dumps(requested)} if requested != [merged] else {})}


def _update_factors(network: dict[str, Any], factors: dict[str, list[Any]]) -> dict[str, Any]:
    """A network of a sweep with all values that its factors have in the merged dataset."""
    return {**network, "factors": {name: factors.get(name, values) for name, values in network["factors"].items()}}


def _unite_factors(sweeps: Iterable[dict[str, list[Any]]]) -> dict[str, list[Any]]:
    lists: dict[str, list[list[Any]]] = {}
    for name, values in chain.from_iterable(factors.items() for factors in sweeps):
        lists.setdefault(name, []).append(values)
    return {name: unite(values) for name, values in lists.items()}


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
