"""Records of a sweep become one labelled dataset.

a journal or records -> columns (tabulate) -> a grid for each set of factors -> xarray.Dataset or DataTree
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from importlib import metadata
from itertools import product
from typing import Any

import numpy as np
import xarray as xr

from ngbkit.dataset import host_states, tabulate
from ngbkit.dataset.storage import Data, load, save
from ngbkit.errors import NgbkitWarning
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.journal import Entry, Journal
from ngbkit.sweep.records import Record
from ngbkit.sweep.trials import ANCHOR, facts_key
from ngbkit.sweep.variables import COORDINATES, DIMS, VARIABLES
from ngbkit.workloads.base import FactorValue, Workload

__all__ = [
    "VARIABLES",
    "Data",
    "assemble",
    "assemble_journal",
    "describe",
    "factor_dims",
    "facts_key",
    "load",
    "nodes",
    "save",
]

Facts = Mapping[str, Mapping[str, Any]]

# Of the year 9999: no date is later.
_LAST_S = 253402300799


def assemble(
    sweep: Grid,
    records: Iterable[Record],
    *,
    environments: Facts | None = None,
    run_id: str = "",
    facts: Facts | None = None,
) -> Data:
    """The records of a sweep as one labelled dataset.

    Parameters
    ----------
    sweep
        The sweep that was measured; its trials without a record are ``pending``.
    records
        In any order. Of two records of one trial the later counts. `latency_s` and `rounds` may be tuples or arrays.
    environments
        The description of each device, by its label.
    run_id
        The id of the run.
    facts
        The facts of each network by `facts_key`: ``parameters``, ``macs``, ``weight_bytes`` and the like.

    Returns
    -------
    xarray.Dataset or xarray.DataTree
        Dims ``device, workload, <factors>, compiler, batch_size, repeat``. Where workloads differ in their factors (by
        name or by value), a tree with one node for each set of factors.

    Raises
    ------
    UsageError
        A record belongs to no trial of the sweep.
    JournalError
        A record has not as many rounds as samples.
    """
    return _assemble(sweep, map(tabulate.from_record, records), environments or {}, run_id, facts or {})


def assemble_journal(sweep: Grid, journal: Journal, *, run_id: str = "") -> Data:
    """As `assemble`, all from a journal; what is damaged in it is left out with a warning, its trials are pending."""
    strays: list[str] = []
    environments, facts = journal.notes("environment"), journal.notes("facts")
    data = _assemble(sweep, journal.entries(), environments, run_id, facts, strays)
    if problem := _describe_problems(journal, strays):
        warnings.warn(f"the journal {journal.path} {problem}", NgbkitWarning, stacklevel=3)
    return data


def _describe_problems(journal: Journal, strays: Collection[str]) -> str:
    """Describe what a journal lacks because of damage, and what it has of other sweeps; empty if nothing."""
    problems = []
    if journal.salvaged is not None:
        problems.append(f"is damaged; {journal.salvaged} of its records could be read")
    if journal.damaged:
        name, reason = next(iter(journal.damaged.items()))
        count = "a damaged entry" if len(journal.damaged) == 1 else f"{len(journal.damaged)} damaged entries"
        problems.append(f"has {count}, left out (the first is {name}: {reason.rstrip('.')})")
    if strays:
        problems.append(f"has {len(strays)} records of trials that are not part of its sweep, which are left out")
    remedy = " Trials without a record are pending: `ngbkit runs --resume` measures them."
    return "; it ".join(problems).rstrip(".") + "." + remedy if problems else ""


def nodes(data: Data) -> dict[str, xr.Dataset]:
    """The datasets of a tree by path, groups without variables left out; a dataset is its own only node, ``/``."""
    if isinstance(data, xr.Dataset):
        return {"/": data}
    return {node.path: node.to_dataset() for node in data.subtree if node.data_vars}


def list_origins(data: Data) -> dict[str, int]:
    """List the earlier runs that measured trials of a dataset, with the number of these."""
    counts = Counter(
        str(run_id) for node in nodes(data).values() if "origin" in node for run_id in node["origin"].values.ravel()
    )
    return {run_id: count for run_id, count in counts.items() if run_id}


def factor_dims(dataset: xr.Dataset) -> list[str]:
    """The dims of a dataset that are factors, in order."""
    return [str(dim) for dim in dataset.dims if dim not in DIMS]


def describe(units: str, long_name: str, comment: str = "") -> dict[str, str]:
    """The attributes that every variable carries; a text has no units and says so by an empty one."""
    return {"units": units, "long_name": long_name, **({"comment": comment} if comment else {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """The workloads that share their factors: a stretch of every flat column, from `start` on."""

    name: str
    workloads: Sequence[Workload]
    factors: Mapping[str, tuple[FactorValue, ...]]
    coords: Mapping[str, Sequence[Any]]
    start: int

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(len, self.coords.values()))

    def combinations(self) -> list[tuple[FactorValue, ...]]:
        """The values of the factors, the last one varying fastest."""
        return list(product(*self.factors.values()))

    def fold(self, column: np.ndarray) -> np.ndarray:
        """This node's stretch of a column, as its grid."""
        stretch = column[self.start : self.start + math.prod(self.shape)]
        return stretch.reshape(*self.shape, *column.shape[1:])


def _assemble(
    sweep: Grid,
    entries: Iterable[Entry],
    environments: Facts,
    run_id: str,
    facts: Facts,
    strays: list[str] | None = None,
) -> Data:
    """Assemble entries; the ids of those that belong to no trial go to `strays`, or are an error without it."""
    recorded = list(entries)
    attributes = {
        "ngbkit_version": metadata.version("ngbkit"),
        "run_id": run_id,
        "created": _find_latest_time(recorded),
        "sweep": json.dumps(sweep.to_json()),
        "environments": json.dumps(environments),
        "facts": json.dumps(facts),
    }
    parts = _build_nodes(sweep)
    positions = _locate_trials(sweep, parts)
    anchors = [entry for entry in recorded if entry[0].trial_id.startswith(ANCHOR)]
    trials = [entry for entry in recorded if not entry[0].trial_id.startswith(ANCHOR)]
    if strays is not None:
        strays += [record.trial_id for record, _, _ in trials if record.trial_id not in positions]
        trials = [entry for entry in trials if entry[0].trial_id in positions]
    width = max([sweep.repeats or 0, *(len(samples) for _, samples, _ in anchors)])
    flat = tabulate.to_columns(trials, positions, width)
    groups = list(sweep.groups()) if anchors else []
    beside = {group.anchor.id: positions[group.trials[0].id] for group in groups if group.anchor is not None}
    if any(entry[0].trial_id in beside for entry in anchors):
        flat |= tabulate.to_anchor_columns(anchors, beside, flat["latency"].shape)
    ties = {  # with the id of the trial that each repeats
        group.tie.id: (positions[group.trials[0].id], replace(group.tie, beside=0, tied="").id)
        for group in groups
        if group.tie
    }
    if any(entry[0].trial_id in ties for entry in anchors):
        # The trial that a tie repeats took turns with other networks itself.
        ties |= {name: (positions[name], name) for _, name in ties.values()}
        flat |= tabulate.to_tie_columns(recorded, ties, flat["latency"].shape)
    datasets = {
        node.name: host_states.judge(_to_dataset(node, flat, facts), environments).assign_attrs(attributes)
        for node in parts
    }
    if len(datasets) == 1:
        return datasets.popitem()[1]
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attributes), **datasets})


def _find_latest_time(entries: Iterable[Entry]) -> str:
    """Find the time of the latest trial, which a replay does not change; empty without any."""
    latest_s = min(max((entry[0].started_at for entry in entries), default=0.0), _LAST_S)
    return datetime.fromtimestamp(latest_s, timezone.utc).isoformat(timespec="seconds") if latest_s else ""


def _build_nodes(sweep: Grid) -> list[_Node]:
    sets: dict[tuple[Any, ...], list[Workload]] = {}
    for workload in sweep.workloads:
        sets.setdefault(tuple(sorted(workload.factors.items())), []).append(workload)
    parts: list[_Node] = []
    start = 0
    for workloads in sets.values():
        factors = workloads[0].factors
        coords: dict[str, Sequence[Any]] = {
            "device": sweep.devices,
            "workload": [workload.name for workload in workloads],
            **factors,
            "compiler": sweep.compilers,
            "batch_size": sweep.batch_sizes,
        }
        title = workloads[0].name if len(workloads) == 1 else "_".join(factors)
        name = name_node(title, [node.name for node in parts])
        parts.append(_Node(name=name, workloads=workloads, factors=factors, coords=coords, start=start))
        start += math.prod(parts[-1].shape)
    return parts


def name_node(title: str, names: Collection[str] = ()) -> str:
    """A name for a node that none of the others has."""
    # A path in a file: no slash, and no leading dot or underscore, which netCDF and zarr keep for themselves.
    name = re.sub(r"[^\w.+-]+", "_", title).strip("._") or "networks"
    numbered = (f"{name}_{number}" for number in range(2, len(names) + 3))
    return name if name not in names else next(candidate for candidate in numbered if candidate not in names)


def _locate_trials(sweep: Grid, parts: Sequence[_Node]) -> dict[str, int]:
    """The position of each trial in a flat column, by its id."""
    node_of = {workload.name: (node, index) for node in parts for index, workload in enumerate(node.workloads)}
    values_of = {node.name: {values: index for index, values in enumerate(node.combinations())} for node in parts}
    device_index = {label: index for index, label in enumerate(sweep.devices)}
    batch_index = {size: index for index, size in enumerate(sweep.batch_sizes)}
    positions: dict[str, int] = {}
    for group in sweep.groups():
        node, workload_index = node_of[group.workload.name]
        values = values_of[node.name]
        first = device_index[group.device] * len(node.workloads) + workload_index
        first = first * len(values) + values[tuple(group.factors[name] for name in node.factors)]
        first = first * len(sweep.compilers) * len(batch_index) + batch_index[group.batch_size]
        for index, trial in enumerate(group.trials):
            positions[trial.id] = node.start + first + index * len(batch_index)
    return positions


def _to_dataset(node: _Node, flat: Mapping[str, np.ndarray], facts: Facts) -> xr.Dataset:
    dims = tuple(node.coords)
    grids = {name: node.fold(column) for name, column in flat.items()}
    grids["throughput"] = np.array(node.coords["batch_size"], dtype=float) / grids.pop("median")
    variables: dict[str, Any] = {}
    for name, variable in VARIABLES.items():
        if name not in grids:
            continue
        repeated = ("repeat",) if variable.dims in ("sample", "anchor sample") else ()
        if variable.dims in ("anchor", "anchor sample"):
            # An anchor has the place of its group's baseline, which is the first compiler.
            others = tuple(dim for dim in dims if dim != "compiler")
            variables[name] = ((*others, *repeated), grids[name].take(0, axis=dims.index("compiler")), variable.attrs)
        else:
            variables[name] = ((*dims, *repeated), grids[name], variable.attrs)
    coords = {dim: (dim, to_labels(values)) for dim, values in node.coords.items()}
    return xr.Dataset(variables, {**coords, **_to_coordinates(node, facts)})


def to_labels(values: Sequence[Any]) -> np.ndarray:
    """The labels of a dim as an array; texts as objects."""
    return np.array(values, dtype=object if isinstance(values[0], str) else None)


def narrow(values: xr.Variable, factors: Iterable[str]) -> xr.Variable:
    """The values without the dims of the factors if they are the same at each; NaN equals NaN."""
    first = values.isel(dict.fromkeys(factors, 0), missing_dims="ignore")
    same = (values == first) | (values.isnull() & first.isnull())
    return first if bool(same.all()) else values


def _to_coordinates(node: _Node, facts: Facts) -> dict[str, Any]:
    """The facts of the networks, along the workloads, and along the factors where they vary with them."""
    of_networks = [
        facts.get(facts_key(workload.name, dict(zip(node.factors, values, strict=True))), {})
        for workload in node.workloads
        for values in node.combinations()
    ]
    coords: dict[str, Any] = {}
    for name, variable in COORDINATES.items():
        if not any(name in network for network in of_networks):
            continue
        missing, dtype = (np.nan, float) if variable.units else ("", object)
        column = np.array([network.get(name, missing) for network in of_networks], dtype=dtype)
        grid = column.reshape(len(node.workloads), *map(len, node.factors.values()))
        coords[name] = narrow(xr.Variable(("workload", *node.factors), grid, variable.attrs), node.factors)
    return coords
