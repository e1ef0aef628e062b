"""The sides of a run that measured the networks of an earlier one beside new ones, and their ratios round by round."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import list_labels
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.intervals import WIDENING
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import UsageError
from ngbkit.metrics.rankings.candidates import RankingCandidate, compute_lead, list_candidates


def label_network(name: str, label: str) -> str:
    """Name a network of an earlier run: ``resnet18 (it2)``."""
    return f"{name} ({label})"


def has_side(data: Data, label: str) -> bool:
    """Return whether a dataset has networks of an earlier run with that label."""
    return any(_is_earlier(name, label) for name in list_labels(data, "workload"))


def split_sides(data: Data, label: str) -> tuple[Data, Data]:
    """Split a dataset into the networks of an earlier run, by their own names, and the others.

    UsageError: it has no network with that label.
    """
    if not has_side(data, label):
        names = map(str, list_labels(data, "workload"))
        raise UsageError(
            f"invalid label of earlier networks: got {label!r}; expected networks such as "
            f"{label_network('resnet18', label)!r} among {', '.join(names)}. Measure both: --beside, or Sweep.beside()."
        )
    return (
        _select(data, lambda name: _is_earlier(name, label), label),
        _select(data, lambda name: not _is_earlier(name, label)),
    )


def list_turns(first: Data, second: Data, renamed: Mapping[str, str]) -> dict[Hashable, tuple[float, float]]:
    """List the ratio of the second throughput over the first of each trial that took turns with its counterpart.

    By `identify_trial`, with the standard deviation of its logarithm. `renamed` has the networks that were matched by
    their place.
    """
    names = {after: before for before, after in renamed.items()}
    earlier, later = (_list_candidates(data) for data in (first, second))
    ratios: dict[Hashable, tuple[float, float]] = {}
    for (device, batch_size), candidates in later.items():
        references = {_identify(device, batch_size, each): each for each in earlier.get((device, batch_size), ())}
        for candidate in candidates:
            key = _identify(device, batch_size, candidate, names)
            reference = references.get(key)
            if reference is None or math.isnan(candidate.bundle) or reference.bundle != candidate.bundle:
                continue
            lead = compute_lead(candidate, reference, LEVEL)
            if lead.compared == "side by side":
                widening = WIDENING if candidate.stopped or reference.stopped else 1.0
                ratios[key] = math.exp(lead.log_ratio), widening * math.hypot(lead.rounds_sd, lead.process_sd)
    return ratios


def identify_trial(labels: Mapping[str, Any]) -> Hashable:
    """Identify a trial by its labels, those that are missing left out."""
    return frozenset((name, label) for name, label in labels.items() if label == label)


def _identify(
    device: str, batch_size: int, candidate: RankingCandidate, names: Mapping[str, str] | None = None
) -> Hashable:
    workload = (names or {}).get(candidate.workload, candidate.workload)
    labels = {"device": device, "batch_size": batch_size, "workload": workload, "compiler": candidate.compiler}
    return identify_trial({**labels, **candidate.factors})


def _list_candidates(data: Data) -> Mapping[tuple[str, int], list[RankingCandidate]]:
    """List the measured columns of a dataset whose trials took turns with those of other networks; none of others."""
    took_turns = any("bundle" in node and bool(node["bundle"].notnull().any()) for node in nodes(data).values())
    return list_candidates(data, "throughput", "allow", untuned=True) if took_turns else {}


def _is_earlier(name: str, label: str) -> bool:
    return name.endswith(label_network("", label))


def _select(data: Data, is_selected: Callable[[str], bool], label: str = "") -> Data:
    """Select networks, in the dataset and in the sweep of its attributes; without the label in their names."""

    def rename(name: str) -> str:
        return name.removesuffix(label_network("", label)) if label else name

    attrs = dict(data.attrs)
    if sweep := json.loads(attrs.get("sweep") or "{}"):
        workloads = [{**each, "name": rename(each["name"])} for each in sweep["workloads"] if is_selected(each["name"])]
        attrs["sweep"] = json.dumps({**sweep, "workloads": workloads})
    selected: dict[str, xr.Dataset] = {}
    for path, node in nodes(data).items():
        names = [str(name) for name in list_labels(node, "workload") if is_selected(str(name))]
        if names:
            part = node.sel(workload=names)
            selected[path] = part.assign_coords(workload=[*map(rename, names)]).assign_attrs(attrs)
    if isinstance(data, xr.Dataset):
        return selected["/"] if selected else data.isel(workload=[])
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs), **selected})
