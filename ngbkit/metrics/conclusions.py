"""The disturbances of a run and its conclusions, in sentences: conclusive trials, the fastest ones, and next steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.contention import find_uncontended
from ngbkit.dataset.dataset_hash import ALTERED
from ngbkit.dataset.environments import read_environments
from ngbkit.dataset.long_form import list_factors, list_labels, to_frame
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import MetricError
from ngbkit.hardware.conditions import describe_other_work
from ngbkit.metrics.draws import HOSTED_SD
from ngbkit.metrics.rankings.networks import describe_fastest_networks
from ngbkit.metrics.rankings.ranking import ranking
from ngbkit.metrics.ratios import is_hosted
from ngbkit.metrics.trial_names import join_names, name_group, name_network, name_places, name_trial
from ngbkit.metrics.unchecked import count_measured, list_unchecked
from ngbkit.sweep.records import INCONCLUSIVE, MEASURED, NOT_CHECKED

#: Below this share of contended samples a machine was quiet: some are always marked.
QUIET = 0.1


def describe_contention(data: Data) -> str:
    """Describe in a phrase whether a file was altered, and how far other work disturbed its run; empty if neither.

    Tables and figures have it, so that their numbers never appear without it.
    """
    altered = "altered: the file is not what ngbkit saved" if data.attrs.get(ALTERED) else ""
    return "; ".join(filter(None, [altered, _describe_contended_samples(data), _describe_start(data)]))


def _describe_start(data: Data) -> str:
    """Describe the other work on the devices at the start of their part of a run."""
    devices = {label: device for node in nodes(data).values() for label, device in read_environments(node).items()}
    states = {label: describe_other_work(device.get("conditions") or {}) for label, device in devices.items()}
    busy = [f"{state} of {label}" if len(states) > 1 else state for label, state in states.items() if state]
    return f"other work used {', and '.join(busy)} when it began" if busy else ""


def _describe_contended_samples(data: Data) -> str:
    parts = [node for node in nodes(data).values() if {"contended", "latency"} <= set(node.variables)]
    total = sum(int(node["latency"].notnull().sum()) for node in parts)
    share = sum(int((node["contended"] > 0).where(node["latency"].notnull()).sum()) for node in parts) / max(total, 1)
    if share < QUIET:
        return ""
    causes = [
        f"{text} {percent:.0f} % of their time"
        for name, text in (("foreign_percent", "other processes took"), ("steal_percent", "the host gave others"))
        if (percent := _average(parts, name)) >= 1
    ]
    reason = f": of the cores, {' and '.join(causes)}" if causes else ""
    return f"{100 * share:.0f} % of the samples were contended{reason}"


def conclude(data: Data) -> list[str]:
    """Draw the conclusions that the intervals of a run allow, one per line.

    Parameters
    ----------
    data
        The dataset or tree of a run.

    Returns
    -------
    list of str
        The trials that were not checked, and those that too few uncontended rounds leave inconclusive, if there are
        any; where several compilers were measured, the fastest of each group where it is sure, the ties, and what would
        settle them; where several networks were, the fastest of each device and batch size, or that it is not
        conclusive; and what intervals allow for on a virtual machine.
    """
    lines = _describe_unchecked(data)
    if inconclusive := _list_inconclusive(data):
        count = count_measured(data)
        names = f" ({join_names(inconclusive)})" if len(inconclusive) < count else ""
        lines.append(
            f"{len(inconclusive)} of {count} trials are not conclusive, since too few of their rounds were uncontended"
            f"{names}. When the machine is quiet, measure them again: "
            f"`ngbkit resume {_name_run(data)} --retry {INCONCLUSIVE}`."
        )
    return [
        *lines,
        *_describe_winners(data, set(inconclusive)),
        *describe_fastest_networks(data),
        *_describe_allowance(data),
    ]


def _describe_unchecked(data: Data) -> list[str]:
    """Describe which trials were not checked, why, and the remedy."""
    names = list_unchecked(data)
    if not names:
        return []
    count, total = sum(map(len, names.values())), count_measured(data)
    reasons = "; ".join(
        ("" if len(trials) == total else f"{join_names(trials)}: ") + reason.rstrip(".")
        for reason, trials in names.items()
    )
    was, clause = ("was", "it is") if count == 1 else ("were", "they are")
    return [
        f"{count} of {total} trials {was} not checked: {reasons}. A wrong answer would not be noticed, so {clause} "
        f"never called the fastest. Remove the reason and run again; `ngbkit resume {_name_run(data)} --retry "
        f"{NOT_CHECKED}` repeats these trials of an unchanged network."
    ]


def _name_run(data: Data) -> str:
    run_id = str(data.attrs.get("run_id") or "RUN")
    return "RUN" if ", " in run_id else run_id


def _describe_allowance(data: Data) -> list[str]:
    """Say why the intervals of a virtual machine are as wide as they are."""
    sampled = [node for node in nodes(data).values() if {"latency", "round"} <= set(node.variables)]
    hosted = dict.fromkeys(
        label
        for node in sampled
        if len(list_labels(node, "compiler")) > 1
        for label, device in read_environments(node).items()
        if is_hosted(device)
    )
    if not hosted:
        return []
    return [
        f"Intervals of speed-ups allow for {100 * HOSTED_SD:.0f} % (standard deviation) by which the host of "
        f"{join_names(hosted)}, a virtual machine, may change them within hours. Repeat the run on other hours: "
        "`ngbkit selfcheck --history` then measures it."
    ]


def _average(parts: Sequence[xr.Dataset], name: str) -> float:
    values = np.concatenate([node[name].values.ravel() for node in parts if name in node] or [np.array([])])
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else 0.0


def _list_inconclusive(data: Data) -> list[str]:
    """The trials with too few uncontended rounds, by name."""
    names = []
    factors = list_factors(data)
    for node in nodes(data).values():
        if "status" not in node:
            continue
        frame = to_frame(xr.Dataset({"uncontended": find_uncontended(node), "status": node["status"]}))
        frame["where"] = name_places(data, frame)
        rows = frame[~frame["uncontended"].astype(bool) & frame["status"].isin(MEASURED)].to_dict("records")
        names += [name_trial(row, factors) for row in rows]
    return names


def _describe_winners(data: Data, inconclusive: set[str]) -> list[str]:
    """Sentences on the fastest compiler of each group: where it is sure, and where it is not."""
    try:
        ranked = ranking(data, unlike="mask")
    except MetricError:
        return []
    factors = list_factors(data)
    winners: dict[str, dict[str, list[str]]] = {}
    ties: list[str] = []
    more_rounds_help = False
    ranked["where"] = name_places(data, ranked)
    rows = ranked.to_dict("records")
    keys = ["workload", *factors, "device", "batch_size"]
    for _, members in groupby(rows, key=lambda row: tuple(str(row[key]) for key in keys)):
        group = list(members)
        if len(group) < 2:
            continue
        name = name_group(group[0], factors)
        if not group[0]["checked"]:
            ties.append(f"{name}: none of {', '.join(row['compiler'] for row in group)} was checked")
            continue
        first, probability = group[0]["compiler"], group[0]["probability"]
        is_conclusive = not {f"{row['compiler']} on {name}" for row in group[:2]} & inconclusive
        unchecked = [f"{row['compiler']} (not checked)" for row in group if _may_be_faster_unchecked(row)]
        if probability >= LEVEL and is_conclusive and not unchecked:
            networks = winners.setdefault(first, {})
            networks.setdefault(name_network(group[0], factors), []).append(str(group[0]["batch_size"]))
        else:
            more_rounds_help |= is_conclusive and not probability >= LEVEL
            ties.append(f"{name}: {_describe_tie(group, unchecked)}")
    count = sum(len(sizes) for networks in winners.values() for sizes in networks.values()) + len(ties)
    lines = [
        f"Fastest: {compiler}, for {join_names(_name_groups(networks), '; ')}."
        for compiler, networks in winners.items()
    ]
    if ties:
        lines.append(f"The fastest is not conclusive in {len(ties)} of {count} groups. {join_names(ties, '; ')}.")
    if more_rounds_help:
        lines.append("More rounds separate compilers that differ: raise -r, or set --precision 1%.")
    return lines


def _describe_tie(group: Sequence[Mapping[Any, Any]], unchecked: Sequence[str]) -> str:
    """Describe the first of a group, how sure it is, and its rivals, with those that were not checked."""
    probability = group[0]["probability"]
    chance = f"p = {probability:.2f}" if np.isfinite(probability) else "too few rounds for a probability"
    chance += " among those checked" if unchecked else ""
    checked = [row["compiler"] for row in group[1:] if row["checked"] and row["probability"] >= 1 - LEVEL]
    rivals = [*checked, *unchecked] or [group[1]["compiler"]]
    return f"{group[0]['compiler']} ({chance}) or {' or '.join(rivals)}"


def _name_groups(networks: dict[str, list[str]]) -> list[str]:
    return [f"{name} batch {', '.join(sizes)}" for name, sizes in networks.items()]


def _may_be_faster_unchecked(row: Mapping[Any, Any]) -> bool:
    """Return whether a row of a ranking was not checked and may be faster than all that were."""
    return not row["checked"] and (row["of_best"] >= 1 or row["probability"] >= 1 - LEVEL)
