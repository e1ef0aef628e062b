"""The sides of a run that measured the networks of an earlier one beside new ones, and their ratios round by round."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import list_labels
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.intervals import WIDENING
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import UsageError
from ngbkit.metrics.rankings.candidates import RankingCandidate, list_candidates
from ngbkit.metrics.rankings.leads import Lead, compute_lead
from ngbkit.metrics.trials import failures
from ngbkit.sweep.records import MEASURED


def label_network(name: str, label: str) -> str:
    """Name a network of an earlier run: ``resnet18 (it2)``."""
    return f"{name} ({label})"


def has_side(data: Data, label: str) -> bool:
    """Return whether a dataset has networks of an earlier run with that label."""
    return any(_is_earlier(name, label) for name in list_labels(data, "workload"))


def split_sides(data: Data, label: str) -> tuple[Data, Data]:
    """Split a dataset into the networks of an earlier run, by their own names, and the others; UsageError if none."""
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
    if not all(
        any("bundle" in node and node["bundle"].notnull().any() for node in nodes(data).values())
        for data in (first, second)
    ):
        return {}
    names = {after: before for before, after in renamed.items()}
    references = {identify_trial(labels): trial for labels, trial in iterate_trials(first)}
    ratios: dict[Hashable, tuple[float, float]] = {}
    for labels, trial in iterate_trials(second):
        key = identify_trial({**labels, "workload": names.get(trial.workload, trial.workload)})
        reference = references.get(key)
        if reference is None or math.isnan(trial.bundle) or reference.bundle != trial.bundle:
            continue
        lead, deviation = compare_sides(trial, reference, are_versions=False)
        if lead.compared == "side by side":
            ratios[key] = math.exp(lead.log_ratio), deviation
    return ratios


def iterate_trials(data: Data) -> Iterator[tuple[dict[str, Any], RankingCandidate]]:
    """Iterate over the measured trials of a dataset, each with its labels in the order of every table."""
    for (device, batch_size), trials in list_candidates(data, "gate", "allow", untuned=True).items():
        for trial in trials:
            place = {"device": device, "compiler": trial.compiler, "batch_size": batch_size}
            yield {"workload": trial.workload, **trial.factors, **place}, trial


def iterate_outcomes(data: Data) -> Iterator[tuple[dict[str, Any], RankingCandidate | str]]:
    """Iterate over the trials of a dataset as `iterate_trials`, and over those without a result by their status."""
    yield from iterate_trials(data)
    for node in nodes(data).values():
        for row in failures(node).to_dict("records"):
            status, error = row.pop("status"), row.pop("error")
            if status not in MEASURED:
                yield {str(name): label for name, label in row.items()}, f"{status}: {error}"


def compare_sides(
    candidate: RankingCandidate, reference: RankingCandidate, *, are_versions: bool
) -> tuple[Lead, float]:
    """Compare two sides of a run: the lead of the first over the second, and the deviation of its logarithm.

    The processes of two versions of one program differ by less than those of two programs may.
    """
    lead = compute_lead(candidate, reference, LEVEL)
    processes_sd = reference.copies_sd if are_versions else lead.process_sd
    deviation = math.hypot(lead.rounds_sd, processes_sd, lead.between_sd)
    return lead, deviation * WIDENING if candidate.stopped or reference.stopped else deviation


def identify_trial(labels: Mapping[str, Any]) -> Hashable:
    """Identify a trial by its labels, those that are missing left out."""
    return frozenset((name, label) for name, label in labels.items() if label == label)


def _is_earlier(name: str, label: str) -> bool:
    return name.endswith(label_network("", label))


def _select(data: Data, is_selected: Callable[[str], bool], label: str = "") -> Data:
    """Select networks, in the dataset and in the sweep of its attributes; without the label in their names."""
    attrs, ending = dict(data.attrs), label_network("", label) if label else ""
    if sweep := json.loads(attrs.get("sweep") or "{}"):
        workloads = [each for each in sweep["workloads"] if is_selected(each["name"])]
        workloads = [{**each, "name": each["name"].removesuffix(ending)} for each in workloads]
        attrs["sweep"] = json.dumps({**sweep, "workloads": workloads})
    selected: dict[str, xr.Dataset] = {}
    for path, node in nodes(data).items():
        names = [str(name) for name in list_labels(node, "workload") if is_selected(str(name))]
        if names:
            part = node.sel(workload=names)
            selected[path] = part.assign_coords(workload=[name.removesuffix(ending) for name in names]).assign_attrs(
                attrs
            )
    if isinstance(data, xr.Dataset):
        return selected["/"] if selected else data.isel(workload=[])
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs), **selected})
