"""Datasets of synthetic runs, for the tests of merging."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import synthetic
import xarray as xr

from ngbkit.api import Sweep
from ngbkit.dataset import assembly as datasets
from ngbkit.dataset.storage import Data
from ngbkit.sweep.column import BASELINE
from ngbkit.sweep.records import Measurement, Record
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
    """A sweep of the workloads, by default of one network."""
    return Sweep(list(workloads) or [network("net")], compilers, batch_sizes, repeats=repeats, **more)


def records(sweep: Sweep, seed: int = 0, failures: float = 0.0) -> list[Record]:
    """Synthetic records, with an anchor for each group that has one: 1.5 times as fast as identity in that group."""
    synthetic_records = synthetic.make_records(sweep, seed, failures)
    by_trial = {record.trial_id: record for record in synthetic_records}
    for group in sweep.groups():
        baseline = by_trial[group.trials[0].id]
        if group.anchor is not None and isinstance(baseline, Measurement):
            latency = tuple(seconds / 1.5 for seconds in baseline.latency_s)
            synthetic_records.append(replace(baseline, trial_id=group.anchor.id, latency_s=latency))
    return synthetic_records


def run(sweep: Sweep, run_id: str = "20260101-000000-aa", seed: int = 0, environments: Any = None, **more: Any) -> Any:
    """The dataset of a run of the sweep; by default the environment of each device is `DEVICE`."""
    environment_of = dict.fromkeys(sweep.devices, DEVICE) if environments is None else environments
    return datasets.assemble(sweep, records(sweep, seed), run_id=run_id, environments=environment_of, **more)


def reorder_like(data: xr.Dataset, other: xr.Dataset) -> xr.Dataset:
    """A dataset with its labels in the order of another, and with the attributes of that."""
    reordered = data.sel({dim: other[dim] for dim in other.dims if dim in other.coords})
    return reordered.drop_attrs(deep=False).assign_attrs(other.attrs)


def load_attribute(data: Data, name: str) -> Any:
    """Load the JSON value of an attribute."""
    return json.loads(data.attrs[name])
