"""The disturbances of a run, in sentences: other work, the host of the machine, page faults."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.contention import select_samples
from ngbkit.dataset.dataset_hash import ALTERED
from ngbkit.dataset.environments import read_environments
from ngbkit.dataset.long_form import list_labels, to_frame
from ngbkit.dataset.storage import Data
from ngbkit.hardware.conditions import describe_other_work
from ngbkit.metrics.arrays import list_rounds
from ngbkit.metrics.host_states import list_states
from ngbkit.metrics.ratios import assume_host_sd, is_hosted
from ngbkit.metrics.rendering import format_number
from ngbkit.metrics.trials import compute_fault_share
from ngbkit.sweep.memory import KEPT, MEMORY, SYSTEM
from ngbkit.sweep.settling import count_waves
from ngbkit.user_text import format_share, join_names

#: Below this share of contended samples a machine was quiet: some are always marked.
QUIET = 0.1
# What took time from the cores, by the variable that says how much.
_CAUSES = {
    "foreign_percent": "other processes took",
    "steal_percent": "the host gave others",
    "throttled_percent": "the container's quota withheld",
    "unusual_percent": "the host moved or shared",
}
# What each probe of a host measures.
_PROBES = {"trip_s": "a cache line from one core to another and back", "work_s": "arithmetic"}
# The share of the CPU time of a call that page faults may cost without a word.
_NOTABLE = 0.05
# By this factor what a fault costs differs between minutes: 1.7 to 2.7 µs on one virtual machine.
_SPREAD = 1.3


def describe_contention(data: Data) -> str:
    """Describe, for tables and figures, whether a file was altered and how far other work disturbed its run."""
    altered = "altered: the file is not what ngbkit saved" if data.attrs.get(ALTERED) else ""
    devices = {label: device for node in nodes(data).values() for label, device in read_environments(node).items()}
    states = {label: describe_other_work(device.get("conditions") or {}) for label, device in devices.items()}
    busy = [f"{state} of {label}" if len(states) > 1 else state for label, state in states.items() if state]
    start = f"other work used {', and '.join(busy)} when it began" if busy else ""
    return "; ".join(filter(None, [altered, _describe_contended_samples(data), start]))


def _describe_contended_samples(data: Data) -> str:
    parts = [node for node in nodes(data).values() if {"contended", "latency"} <= set(node.variables)]
    total = sum(int(node["latency"].notnull().sum()) for node in parts)
    share = sum(int((node["contended"] > 0).where(node["latency"].notnull()).sum()) for node in parts) / max(total, 1)
    if share < QUIET:
        return ""
    percents = {name: average_percent(parts, name) for name in _CAUSES}
    causes = [f"{_CAUSES[name]} {percent:.0f} % of their time" for name, percent in percents.items() if percent >= 1]
    reason = f": of the cores, {' and '.join(causes)}" if causes else ""
    return f"{100 * share:.0f} % of the samples were contended{reason}"


def average_percent(parts: Sequence[xr.Dataset], name: str) -> float:
    """Average a percentage over the trials that have it."""
    values = np.concatenate([np.ravel(part[name]) for part in parts if name in part] or [np.array([])])
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else 0.0


def describe_allowance(data: Data) -> list[str]:
    """Say why the intervals of a virtual machine are as wide as they are."""
    sampled = [
        node
        for node in nodes(data).values()
        if {"latency", "round"} <= set(node.variables) and node["latency"].notnull().any()
    ]
    hosted: dict[float, list[str]] = {}
    for node in sampled:
        if count_waves(list_rounds(select_samples(node)["round"])) > 1:  # what it does was measured
            continue
        for label, device in read_environments(node).items() if len(list_labels(node, "compiler")) > 1 else ():
            labels = hosted.setdefault(assume_host_sd(device), [])
            if is_hosted(device) and label not in labels:
                labels.append(label)
    return [
        f"Intervals of speed-ups allow for {100 * sd:.2g} % (standard deviation, assumed) by which the host of "
        f"{join_names(labels)}, a virtual machine, may change them within hours. Repeat the run on other hours: "
        "`ngbkit selfcheck --history` then measures it."
        for sd, labels in hosted.items()
        if labels
    ]


def describe_states(data: Data) -> list[str]:
    """Describe the ways in which the hosts of a run have run their cores, where there are several."""
    lines = {}
    for node in nodes(data).values():
        for label, device in read_environments(node).items():
            ways = []
            for probe, task in _PROBES.items():
                states = list_states(device, probe)
                shares = [f"{name} in {format_share(state['share'], '.0f')}" for name, state in states.items()]
                ways += [f"{task} takes {join_names(shares)} of the readings"] if len(shares) > 1 else []
            if ways:
                lines[label] = (
                    f"The host of {label} runs its cores in several ways: {', and '.join(ways)}. Estimates leave out "
                    f"all but the first way where enough rounds remain, and are marked where not; "
                    f"`ds.ngb.by_state()` has each."
                )
            elif "states" in device and not any(device["states"].values()) and _has_probes(node):
                lines[label] = (
                    f"The probes of {label} have too few readings yet to tell in which ways its host runs the cores: "
                    f"nothing was left out for it. Repeat the run, and compare both."
                )
    return [*lines.values()]


def _has_probes(node: xr.Dataset) -> bool:
    return "core_trip" in node and bool((node["core_trip"] > 0).any())


def describe_faults(data: Data) -> list[str]:
    """Describe which columns spend a notable share of their CPU time on page faults, each by the worst trial."""
    most: dict[str, dict[Any, Any]] = {}
    for node in nodes(data).values():
        if "minor_faults" not in node or "latency" not in node:
            continue
        frame = to_frame(node[["minor_faults", "contract"]].assign(share=compute_fault_share(node)))
        for row in frame[frame["share"] >= _NOTABLE].sort_values("share").to_dict("records"):
            most[row["compiler"]] = row
    sentences = []
    for label, row in most.items():
        low, high = 100 * (row["share"] / _SPREAD), format_share(min(1.0, row["share"] * _SPREAD), ".0f")
        memory = str(json.loads(row["contract"] or "{}").get(MEMORY, SYSTEM))
        sentences.append(
            f"{format_number(row['minor_faults'])} page faults a call cost {label} about {low:.0f} to {high} of "
            f"its CPU time ({row['workload']}, batch {row['batch_size']}): its memory is {memory}"
            f"{f', and {KEPT} returns no page' if memory == SYSTEM else ''}."
        )
    return sentences
