"""What disturbed a run, and its conclusions, in sentences: what is settled, what is fastest, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.disturbance import settled
from ngbkit.dataset.environments import read_environments
from ngbkit.dataset.long_form import list_factors, list_labels, to_frame
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError
from ngbkit.hardware.conditions import describe_other_work
from ngbkit.metrics.draws import HOSTED_SD
from ngbkit.metrics.estimate import LEVEL
from ngbkit.metrics.rankings.networks import describe_fastest_networks
from ngbkit.metrics.rankings.ranking import ranking
from ngbkit.metrics.ratios import is_hosted
from ngbkit.sweep.records import UNSETTLED

if TYPE_CHECKING:
    import pandas as pd

#: Below this share of disturbed samples a machine was quiet: some are always marked.
QUIET = 0.1
# The number of groups that are named one by one.
_MOST = 6


def describe_disturbance(data: Data) -> str:
    """Describe in a phrase how far other work disturbed a run; empty if it was quiet or not monitored.

    Tables and figures have it, so that their numbers never appear without it.
    """
    return "; ".join(filter(None, [_describe_disturbed_samples(data), _describe_start(data)]))


def _describe_start(data: Data) -> str:
    """What ran on the devices when their part of a run began."""
    devices = {label: device for node in nodes(data).values() for label, device in read_environments(node).items()}
    states = {label: describe_other_work(device.get("conditions") or {}) for label, device in devices.items()}
    busy = [f"{state} of {label}" if len(states) > 1 else state for label, state in states.items() if state]
    return f"other work used {', and '.join(busy)} when it began" if busy else ""


def _describe_disturbed_samples(data: Data) -> str:
    parts = [node for node in nodes(data).values() if {"disturbed", "latency"} <= set(node.variables)]
    total = sum(int(node["latency"].notnull().sum()) for node in parts)
    share = sum(int((node["disturbed"] > 0).where(node["latency"].notnull()).sum()) for node in parts) / max(total, 1)
    if share < QUIET:
        return ""
    causes = [
        f"{text} {percent:.0f} % of their time"
        for name, text in (("foreign_percent", "other processes took"), ("steal_percent", "the host gave others"))
        if (percent := _average(parts, name)) >= 1
    ]
    reason = f": of the cores, {' and '.join(causes)}" if causes else ""
    return f"{100 * share:.0f} % of the samples were disturbed{reason}"


def conclude(data: Data) -> list[str]:
    """Draw the conclusions that the intervals of a run allow, one per line.

    Parameters
    ----------
    data
        The dataset or tree of a run.

    Returns
    -------
    list of str
        The trials that are not settled, if there are any; where several compilers were measured, the fastest of each
        group where it is sure, the ties, and what would settle them; where several networks were, the fastest of each
        device and batch size, or that it is not settled; and what intervals allow for on a virtual machine.
    """
    lines = []
    if unsettled := _list_unsettled(data):
        count = sum(int((node["status"] == "ok").sum()) for node in nodes(data).values() if "status" in node)
        names = f" ({_join(unsettled)})" if len(unsettled) < count else ""
        run_id = str(data.attrs.get("run_id") or "RUN")
        lines.append(
            f"{len(unsettled)} of {count} trials are not settled, since too few of their rounds were undisturbed"
            f"{names}. When the machine is quiet, measure them again: "
            f"`ngbkit resume {'RUN' if ', ' in run_id else run_id} --retry {UNSETTLED}`."
        )
    return [
        *lines,
        *_describe_winners(data, set(unsettled)),
        *describe_fastest_networks(data),
        *_describe_allowance(data),
    ]


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
        f"{_join(hosted)}, a virtual machine, may change them within hours. Repeat the run on other hours: `ngbkit "
        "selfcheck --history` then measures it."
    ]


def _average(parts: Sequence[xr.Dataset], name: str) -> float:
    values = np.concatenate([node[name].values.ravel() for node in parts if name in node] or [np.array([])])
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else 0.0


def _list_unsettled(data: Data) -> list[str]:
    """The trials that are not settled, by name."""
    names = []
    factors = list_factors(data)
    for node in nodes(data).values():
        if "status" not in node:
            continue
        frame = to_frame(xr.Dataset({"settled": settled(node), "status": node["status"]}))
        frame["where"] = _name_places(data, frame)
        rows = frame[~frame["settled"].astype(bool) & (frame["status"] == "ok")].to_dict("records")
        names += [f"{row['compiler']} on {_name_group(row, factors)}" for row in rows]
    return names


def _describe_winners(data: Data, unsettled: set[str]) -> list[str]:
    """Sentences on the fastest compiler of each group: where it is sure, and where it is not."""
    try:
        ranked = ranking(data, unlike="mask")
    except MetricError:
        return []
    factors = list_factors(data)
    winners: dict[str, dict[str, list[str]]] = {}
    ties: list[str] = []
    more_rounds_help = False
    ranked["where"] = _name_places(data, ranked)
    rows = ranked.to_dict("records")
    keys = ["workload", *factors, "device", "batch_size"]
    for _, members in groupby(rows, key=lambda row: tuple(str(row[key]) for key in keys)):
        group = list(members)
        if len(group) < 2:
            continue
        name = _name_group(group[0], factors)
        first, probability = group[0]["compiler"], group[0]["probability"]
        is_settled = not {f"{row['compiler']} on {name}" for row in group[:2]} & unsettled
        if probability >= LEVEL and is_settled:
            networks = winners.setdefault(first, {})
            networks.setdefault(_name_network(group[0], factors), []).append(str(group[0]["batch_size"]))
        else:
            more_rounds_help |= is_settled
            chance = f"p = {probability:.2f}" if np.isfinite(probability) else "too few rounds for a probability"
            rivals = [row["compiler"] for row in group[1:] if row["probability"] >= 1 - LEVEL] or [group[1]["compiler"]]
            ties.append(f"{name}: {first} ({chance}) or {' or '.join(rivals)}")
    count = sum(len(sizes) for networks in winners.values() for sizes in networks.values()) + len(ties)
    lines = [
        f"Fastest: {compiler}, for {_join(_name_groups(networks), '; ')}." for compiler, networks in winners.items()
    ]
    if ties:
        lines.append(f"The fastest is not settled in {len(ties)} of {count} groups. {_join(ties, '; ')}.")
    if more_rounds_help:
        lines.append("More rounds separate compilers that differ: raise -r, or set --precision 1%.")
    return lines


def _name_places(data: Data, frame: pd.DataFrame) -> list[str]:
    """The device of each row, to be named where there are several."""
    devices = {label for node in nodes(data).values() for label in list_labels(node, "device")}
    return [f" on {label}" if len(devices) > 1 else "" for label in frame["device"]]


def _name_groups(networks: dict[str, list[str]]) -> list[str]:
    return [f"{name} batch {', '.join(sizes)}" for name, sizes in networks.items()]


def _name_group(row: dict[Any, Any], factors: Sequence[str]) -> str:
    return f"{_name_network(row, factors)} batch {row['batch_size']}"


def _name_network(row: dict[Any, Any], factors: Sequence[str]) -> str:
    values = "".join(f" {name}={row[name]:g}" for name in factors if row.get(name) == row.get(name, 0) and name in row)
    return f"{row['workload']}{values}{row.get('where', '')}"


def _join(names: Iterable[str], separator: str = ", ") -> str:
    listed = list(names)
    more = f"{separator}and {len(listed) - _MOST} more" if len(listed) > _MOST else ""
    return separator.join(listed[:_MOST]) + more
