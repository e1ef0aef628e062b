"""Datasets of runs that were not run, for the tests of what is merged."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import xarray as xr

from ngbkit.dataset import assembly as datasets
from ngbkit.dataset import synthetic
from ngbkit.dataset.storage import Data
from ngbkit.sweep.grid import Sweep
from ngbkit.sweep.records import Measurement, Record
from ngbkit.sweep.trials import BASELINE
from ngbkit.workloads.base import Workload

DEVICE = {"chip": "A", "threads": 4, "memory_bytes": 1000, "packages": {"torch": "2.9"}}


def network(name: str, **factors: tuple[float, ...]) -> Workload:
    return Workload(name=name, source="timm", spec={"name": name}, takes=tuple(factors), factors=factors)


def sweep(
    *workloads: Workload,
    compilers: Any = (BASELINE, "openvino", "onnxruntime"),
    batch_sizes: Any = (1, 4),
    repeats: int = 20,
    **more: Any,
) -> Sweep:
    """Of one network, where none is given."""
    return Sweep(list(workloads) or [network("net")], compilers, batch_sizes, repeats=repeats, **more)


def records(asked: Sweep, seed: int = 0, failures: float = 0.0) -> list[Record]:
    """Synthetic ones, and an anchor for each group that has one: half as fast again as identity in that group."""
    found = synthetic.records(asked, seed, failures)
    own = {record.trial_id: record for record in found}
    for group in asked.groups():
        beside = own[group.trials[0].id]
        if group.anchor is not None and isinstance(beside, Measurement):
            latency = tuple(each / 1.5 for each in beside.latency_s)
            found.append(replace(beside, trial_id=group.anchor.id, latency_s=latency))
    return found


def run(asked: Sweep, run_id: str = "20260101-000000-aa", seed: int = 0, environments: Any = None, **more: Any) -> Any:
    """What a run of the sweep gave, each device being `DEVICE` unless its environment is given."""
    known = dict.fromkeys(asked.devices, DEVICE) if environments is None else environments
    return datasets.assemble(asked, records(asked, seed), run_id=run_id, environments=known, **more)


def like(data: xr.Dataset, other: xr.Dataset) -> xr.Dataset:
    """A dataset with its labels in the order of another, and without its attributes."""
    found = data.sel({dim: other[dim] for dim in other.dims if dim in other.coords})
    return found.drop_attrs(deep=False).assign_attrs(other.attrs)


def told(data: Data, name: str) -> Any:
    """What an attribute says in JSON."""
    return json.loads(data.attrs[name])
