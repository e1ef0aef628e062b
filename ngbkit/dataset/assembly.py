"""Where records become one labelled dataset, and where that dataset is kept in a file.

journal rows or records -> columns -> a grid for each set of factors -> xarray.Dataset or DataTree -> netCDF
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from itertools import product
from typing import Any

import numpy as np
import xarray as xr

from ngbkit.dataset import tabulate
from ngbkit.dataset.storage import Data, load, save
from ngbkit.dataset.tabulate import NO_ROUND, Entry
from ngbkit.sweep.grid import Sweep
from ngbkit.sweep.journal import Row
from ngbkit.sweep.records import STATUSES, Record
from ngbkit.sweep.trials import ANCHOR, facts_key
from ngbkit.workloads.base import Number, Workload

__all__ = [
    "VARIABLES",
    "Data",
    "assemble",
    "assemble_rows",
    "describe",
    "factor_dims",
    "facts_key",
    "load",
    "nodes",
    "save",
]

Known = Mapping[str, Mapping[str, Any]]

# variable: (units, long_name, comment)
VARIABLES: Mapping[str, tuple[str, str, str]] = {
    "latency": (
        "s",
        "latency of one inference of the whole batch",
        "NaN where there is no sample; the mean of calls_per_sample calls in a row",
    ),
    "round": ("1", "interleaving round of a sample", f"{NO_ROUND} where there is no sample"),
    "disturbed": ("1", "whether something else had the cores for a part of that round", "1 where it had, else 0"),
    "anchor_latency": (
        "s",
        "latency of identity at batch size 1, in the same rounds as the compilers of this batch size",
        "ties together what was measured at different times",
    ),
    "anchor_round": ("1", "interleaving round of a sample of the anchor", f"{NO_ROUND} where there is no sample"),
    "throughput": ("samples/s", "throughput", "batch size over the median latency"),
    "calls_per_sample": ("1", "calls in a row that a sample is the mean of", "above 1 for short calls"),
    "interleaved": ("1", "whether the compilers of the group took turns", "0 where memory did not hold them all"),
    "looks": ("1", "how often the stopping rule looked at the interval", "0 with fixed repeats"),
    "compile_time": ("s", "conversion and compilation time with empty caches", ""),
    "compile_time_warm": (
        "s",
        "compilation time in a new process with what the first left in the compiler's cache",
        "NaN where the compiler keeps none",
    ),
    "first_call_time": ("s", "time of the first call after compilation", ""),
    "cpu_percent": ("%", "CPU use of the machine while measuring", "of all cores"),
    "process_cpu_percent": ("%", "CPU use of the measuring process alone", "of all cores"),
    "peak_memory": ("B", "peak resident memory of the measuring process", ""),
    "gpu_percent": ("%", "use of the accelerator while measuring", "NaN where there is none"),
    "gpu_memory": ("B", "peak memory taken of the accelerator while measuring", "NaN where there is none"),
    "energy": ("J", "energy that the accelerator takes for one call", "NaN where it does not tell"),
    "max_abs_error": ("1", "largest absolute error against the float64 reference", ""),
    "rmse_ratio": (
        "1",
        "error against the float64 reference, over the baseline's own",
        "an exact baseline counts as one rounding of float32 (2^-24); 1 where both are exact",
    ),
    "nodes_before": ("1", "operators of the graph that the compiler was given", "NaN where it does not tell"),
    "nodes_after": ("1", "operators that are executed in a call", "NaN where it does not tell"),
    "nodes_fused": ("1", "executed operators that do the work of more than one", "NaN where it does not tell"),
    "fallbacks": ("1", "executed operators that run elsewhere than asked for", "NaN where it does not tell"),
    "graph_breaks": ("1", "breaks of the captured graph", "NaN where there is no such thing"),
    "contract": ("", "what a timed call includes, as JSON", ""),
    "status": ("", "what became of the trial", f"one of {', '.join(STATUSES)}"),
    "error": ("", "type and message of a failure", ""),
    "facts": ("", "what else the trial left behind, as JSON", ""),
}

# coordinate: (units, long_name)
_FACTS = {
    "parameters": ("1", "number of parameters"),
    "mult_adds": ("1", "mult-adds of one sample as torchinfo counts them: a linear layer once, not once a token"),
    "macs": ("1", "multiply-accumulate operations of one sample"),
    "weight_bytes": ("B", "parameters and buffers"),
    "input_bytes": ("B", "inputs of one sample"),
    "output_bytes": ("B", "outputs of one sample"),
    "baseline": ("", "what identity means"),
}

_DIMS = ("device", "workload", "compiler", "batch_size", "repeat")


def assemble(
    sweep: Sweep,
    records: Iterable[Record],
    *,
    environments: Known | None = None,
    run_id: str = "",
    facts: Known | None = None,
) -> Data:
    """The records of a sweep as one labelled dataset.

    Parameters
    ----------
    sweep
        What was asked for; its trials that have no record are ``pending``.
    records
        In any order. Of two records of one trial the later counts. `latency_s` and `rounds` may be tuples or arrays.
    environments
        What each device is, by its label.
    run_id
        Of the run that measured.
    facts
        What is known of each network, by `facts_key`: ``parameters``, ``macs``, ``weight_bytes`` and the like.

    Returns
    -------
    xarray.Dataset or xarray.DataTree
        Dims ``device, workload, <factors>, compiler, batch_size, repeat``. Where workloads differ in their factors (by
        name or by value), a tree with one node for each set of factors.

    Raises
    ------
    UsageError
        A record is of no trial of the sweep.
    JournalError
        A record has not as many rounds as samples.
    """
    return _assemble(sweep, map(tabulate.from_record, records), environments or {}, run_id, facts or {})


def assemble_rows(
    sweep: Sweep,
    rows: Iterable[Row],
    *,
    environments: Known | None = None,
    run_id: str = "",
    facts: Known | None = None,
) -> Data:
    """As `assemble`, from the rows of a journal (see `Row`): no sample becomes a Python object.

    Raises
    ------
    UsageError, JournalError
        As `assemble`; also for a row that was cut short.
    """
    return _assemble(sweep, map(tabulate.from_row, rows), environments or {}, run_id, facts or {})


def nodes(data: Data) -> dict[str, xr.Dataset]:
    """The datasets of a tree by path, groups without variables left out; a dataset is its own only node, ``/``."""
    if isinstance(data, xr.Dataset):
        return {"/": data}
    return {node.path: node.to_dataset() for node in data.subtree if node.data_vars}


def factor_dims(dataset: xr.Dataset) -> list[str]:
    """The dims of a dataset that are factors, in order."""
    return [str(dim) for dim in dataset.dims if dim not in _DIMS]


def describe(units: str, long_name: str, comment: str = "") -> dict[str, str]:
    """The attributes that every variable carries; a text has no units and says so by an empty one."""
    return {"units": units, "long_name": long_name, **({"comment": comment} if comment else {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """The workloads that share their factors: a stretch of every flat column, from `start` on."""

    name: str
    workloads: Sequence[Workload]
    factors: Mapping[str, tuple[Number, ...]]
    coords: Mapping[str, Sequence[Any]]
    start: int

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(len, self.coords.values()))

    def combinations(self) -> list[tuple[Number, ...]]:
        """The values of the factors, the last one varying fastest."""
        return list(product(*self.factors.values()))

    def fold(self, column: np.ndarray) -> np.ndarray:
        """This node's stretch of a column, as its grid."""
        stretch = column[self.start : self.start + math.prod(self.shape)]
        return stretch.reshape(*self.shape, *column.shape[1:])


def _assemble(sweep: Sweep, entries: Iterable[Entry], environments: Known, run_id: str, facts: Known) -> Data:
    attributes = {
        "ngbkit_version": metadata.version("ngbkit"),
        "run_id": run_id,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "sweep": json.dumps(sweep.to_json()),
        "environments": json.dumps(environments),
        "facts": json.dumps(facts),
    }
    parts = _nodes(sweep)
    places = _places(sweep, parts)
    found = list(entries)
    flat = tabulate.spread((one for one in found if not _is_anchor(one)), places, sweep.repeats or 0)
    anchors = [one for one in found if _is_anchor(one)]
    if anchors:
        beside = {group.anchor.id: places[group.trials[0].id] for group in sweep.groups() if group.anchor is not None}
        flat |= tabulate.spread_anchors(anchors, beside, flat["latency"].shape)
    datasets = {node.name: _dataset(node, flat, facts).assign_attrs(attributes) for node in parts}
    if len(datasets) == 1:
        return datasets.popitem()[1]
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attributes), **datasets})


def _is_anchor(entry: Entry) -> bool:
    return entry[0].trial_id.startswith(ANCHOR)


def _nodes(sweep: Sweep) -> list[_Node]:
    sets: dict[tuple[Any, ...], list[Workload]] = {}
    for workload in sweep.workloads:
        sets.setdefault(tuple(sorted(workload.factors.items())), []).append(workload)
    found: list[_Node] = []
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
        name = _node_name(workloads, [node.name for node in found])
        found.append(_Node(name=name, workloads=workloads, factors=factors, coords=coords, start=start))
        start += math.prod(found[-1].shape)
    return found


def _node_name(workloads: Sequence[Workload], taken: Sequence[str]) -> str:
    wanted = workloads[0].name if len(workloads) == 1 else "_".join(workloads[0].factors) or "networks"
    # A path in a file: no slash, and no leading dot or underscore, which netCDF and zarr keep for themselves.
    name = re.sub(r"[^\w.+-]+", "_", wanted).strip("._") or "networks"
    numbered = (f"{name}_{number}" for number in range(2, len(taken) + 3))
    return name if name not in taken else next(each for each in numbered if each not in taken)


def _places(sweep: Sweep, parts: Sequence[_Node]) -> dict[str, int]:
    """Where in a flat column each trial is, by its id."""
    node_of = {workload.name: (node, at) for node in parts for at, workload in enumerate(node.workloads)}
    values_of = {node.name: {values: at for at, values in enumerate(node.combinations())} for node in parts}
    device_at = {label: at for at, label in enumerate(sweep.devices)}
    batch_at = {size: at for at, size in enumerate(sweep.batch_sizes)}
    places: dict[str, int] = {}
    for group in sweep.groups():
        node, workload_at = node_of[group.workload.name]
        values = values_of[node.name]
        first = device_at[group.device] * len(node.workloads) + workload_at
        first = first * len(values) + values[tuple(group.factors[name] for name in node.factors)]
        first = first * len(sweep.compilers) * len(batch_at) + batch_at[group.batch_size]
        for at, trial in enumerate(group.trials):
            places[trial.id] = node.start + first + at * len(batch_at)
    return places


def _dataset(node: _Node, flat: Mapping[str, np.ndarray], facts: Known) -> xr.Dataset:
    dims = tuple(node.coords)
    grids = {name: node.fold(column) for name, column in flat.items()}
    grids["throughput"] = np.array(node.coords["batch_size"], dtype=float) / grids.pop("median")
    variables = {
        name: ((*dims, "repeat") if grids[name].ndim > len(dims) else dims, grids[name], describe(*about))
        for name, about in VARIABLES.items()
        if name in grids
    }
    for name in ("anchor_latency", "anchor_round"):
        if name in variables:
            # An anchor stands where the baseline of its group does, which is the first compiler.
            full, grid, about = variables[name]
            rest = tuple(dim for dim in full if dim != "compiler")
            variables[name] = (rest, grid.take(0, axis=full.index("compiler")), about)
    coords = {dim: (dim, _labels(values)) for dim, values in node.coords.items()}
    return xr.Dataset(variables, {**coords, **_fact_coords(node, facts)})


def _labels(values: Sequence[Any]) -> np.ndarray:
    return np.array(values, dtype=object if isinstance(values[0], str) else None)


def _fact_coords(node: _Node, facts: Known) -> dict[str, Any]:
    """What is known of the networks, along the workloads, and along the factors where it varies with them."""
    known = [
        facts.get(facts_key(workload.name, dict(zip(node.factors, values, strict=True))), {})
        for workload in node.workloads
        for values in node.combinations()
    ]
    coords: dict[str, Any] = {}
    for name in [name for name in _FACTS if any(name in fact for fact in known)]:
        missing, dtype = ("", object) if name == "baseline" else (np.nan, float)
        column = np.array([fact.get(name, missing) for fact in known], dtype=dtype)
        grid = column.reshape(len(node.workloads), *map(len, node.factors.values()))
        lines = column.reshape(len(node.workloads), -1)
        same = (lines == lines[:, :1]) | ((lines != lines) & (lines[:, :1] != lines[:, :1]))  # NaN is like NaN
        about = describe(*_FACTS[name])
        coords[name] = (("workload",), lines[:, 0], about) if same.all() else (("workload", *node.factors), grid, about)
    return coords
