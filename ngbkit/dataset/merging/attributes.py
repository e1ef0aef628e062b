"""What merged datasets say of themselves: devices, networks, runs, and what was asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import chain, combinations
from typing import Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import factor_dims
from ngbkit.dataset.merging.parts import FACTS, LABELS, Part, two_of_one_name
from ngbkit.dataset.merging.trials import union
from ngbkit.errors import UsageError
from ngbkit.hardware.environment import unlike
from ngbkit.sweep.trials import facts_key


def attributes(parts: Sequence[Part]) -> dict[str, Any]:
    """The attributes of all but for the sweeps: what none contradicts, and the union of what this module understands.

    Raises
    ------
    UsageError
        A label is of two devices, or a name of two networks.
    """
    told: dict[str, list[Any]] = {}
    for name, value in chain.from_iterable(part.attrs.items() for part in parts):
        told.setdefault(name, []).append(value)
    found = {name: one for name, (one, *others) in told.items() if all(np.array_equal(one, each) for each in others)}
    for name in {"run_id", "ngbkit_version"} & {*told}:
        found[name] = ", ".join(sorted(_words(told[name])))
    if "created" in told:
        found["created"] = max(told["created"])
    aged = sorted(parts, key=_age)
    for name, merged in (("environments", _environments), ("facts", _facts)):
        if name in told:
            found[name] = json.dumps(merged(aged))
    return found


def sweeps(parts: Sequence[Part], datasets: Sequence[xr.Dataset]) -> dict[str, str]:
    """``sweep``, which asks for every label of the datasets; ``sweeps``, all that were asked for, unless that is it."""
    asked: dict[str, dict[str, Any]] = {}
    networks: dict[str, dict[str, Any]] = {}
    latest: dict[str, Any] = {}
    for part in sorted(parts, key=_age):
        latest = part.told("sweep") or latest
        for each in part.told("sweeps") or [part.told("sweep")]:
            asked |= {json.dumps(each, sort_keys=True): each} if each else {}
        described = {network["name"]: network for network in part.told("sweep").get("workloads", [])}
        known = part.known_as("workload").items()
        networks |= {label: {**described[name], "name": label} for label, name in known if name in described}
    if not latest:
        return {}
    labels = {dim: union(dataset[dim].values.tolist() for dataset in datasets) for dim in LABELS}
    swept = {
        label: {name: dataset[name].values.tolist() for name in factor_dims(dataset)}
        for dataset in datasets
        for label in dataset["workload"].values.tolist()
    }
    whole = {
        **latest,
        "workloads": [_swept(networks[label], swept[label]) for label in swept if label in networks],
        "compilers": labels["compiler"],
        "batch_sizes": labels["batch_size"],
        "factors": _united(each["factors"] for each in asked.values()),
        "devices": labels["device"],
    }
    several = list(asked.values())
    return {"sweep": json.dumps(whole), **({"sweeps": json.dumps(several)} if several != [whole] else {})}


def _swept(network: dict[str, Any], factors: dict[str, list[Any]]) -> dict[str, Any]:
    """A network of a sweep with all values of its factors that are there now."""
    return {**network, "factors": {name: factors.get(name, values) for name, values in network["factors"].items()}}


def _united(several: Iterable[dict[str, list[Any]]]) -> dict[str, list[Any]]:
    values: dict[str, list[list[Any]]] = {}
    for name, each in chain.from_iterable(factors.items() for factors in several):
        values.setdefault(name, []).append(each)
    return {name: union(each) for name, each in values.items()}


def _age(part: Part) -> tuple[str, ...]:
    """Later runs come later, for their ids begin with the time; the rest has any order, so long as it is one."""
    last = max(_words([part.attrs.get("run_id", "")]), default="")
    return last, *(str(part.attrs.get(name, "")) for name in ("created", "sweep", "environments", "facts"))


def _words(texts: Iterable[Any]) -> set[str]:
    return {word for text in texts for word in str(text).split(", ") if word}


def _environments(parts: Sequence[Part]) -> dict[str, Any]:
    """What each device is: of two sessions of one, what the later tells, and what only the earlier does."""
    sessions: dict[str, list[dict[str, Any]]] = {}
    for part in parts:
        known = part.told("environments")
        for label, name in part.known_as("device").items():
            if name in known and known[name] not in sessions.setdefault(label, []):
                sessions[label].append(known[name])
    found: dict[str, Any] = {}
    for label, several in sessions.items():
        for one, other in combinations(several, 2):
            if changes := unlike(one, other):
                raise UsageError(
                    f"{label!r} is not the same device in all datasets, or not in the same state: "
                    f"{'; '.join(changes)}. Give one of the two a label of its own by .assign_coords(device=[…]) "
                    "before they are merged."
                )
        for about in several:
            told = {key: value for key, value in about.items() if value not in (None, "", {})}
            found[label] = {**about, **found.get(label, {}), **told}
    return found


def _facts(parts: Sequence[Part]) -> dict[str, Any]:
    """What is known of each network, by `facts_key`; of what differs between devices, what the latest run found."""
    found: dict[str, Any] = {}
    for part in parts:
        names = {name: label for label, name in part.known_as("workload").items()}
        for key, facts in part.told("facts").items():
            name, factors = json.loads(key)
            if name not in names:
                continue
            whole = found.setdefault(facts_key(names[name], factors), {})
            for what in FACTS:
                if None not in (whole.get(what), facts.get(what)) and whole[what] != facts[what]:
                    raise two_of_one_name(what, {"workload": names[name], **factors})
            whole |= {what: value for what, value in facts.items() if value is not None or what not in whole}
    return found
