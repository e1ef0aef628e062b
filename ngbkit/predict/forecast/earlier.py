"""Trials that were measured earlier: of this machine's latest runs, and of a dataset."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import xarray as xr

from ngbkit import runs
from ngbkit.dataset import contention, storage
from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import expand_labels, list_labels
from ngbkit.dataset.storage import Data
from ngbkit.errors import NgbkitError, UsageError
from ngbkit.metrics import arrays
from ngbkit.predict.forecast.costs import Cost, compute_cost, compute_sample_s
from ngbkit.predict.forecast.imputation import list_keys
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Measurement
from ngbkit.sweep.settling import is_conclusive, select_latency
from ngbkit.sweep.trials import Trial, facts_key
from ngbkit.workloads.base import Workload

# The number of latest runs that are read, and of trials of each.
_RUNS, _TRIALS = 8, 200


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierTrial:
    """A measured trial of some run: its median latency, whether that is conclusive, and facts of its network."""

    trial: Trial
    seconds: float
    conclusive: bool
    cost: Cost
    facts: dict[str, float | None]


def load_earlier_trials(
    data: Data | str | os.PathLike[str] | None = None,
    *,
    devices: Collection[str] = (),
    except_run: str | None = None,
) -> Iterator[EarlierTrial]:
    """Yield the trials of a dataset of one of the `devices`, and of the latest runs except the one with that id."""
    run_ids = {except_run}
    if data is not None:
        dataset = storage.load(data) if isinstance(data, (str, os.PathLike)) else data
        yield from _read_dataset(dataset, devices)
        run_ids |= set(str(dataset.attrs.get("run_id", "")).split(", "))
    summaries = (summary for summary in runs.summaries() if summary.id not in run_ids)
    for summary in islice(summaries, _RUNS):
        try:
            trials = {trial.id: trial for trial in summary.sweep.trials()}
            with Journal(runs.find(summary.id) / "journal.sqlite", writable=False) as journal:
                records = list(islice(journal.records(), _TRIALS))
                facts = journal.notes("facts")
        except NgbkitError:
            continue
        for record in records:
            trial = trials.get(record.trial_id)
            if trial is not None and isinstance(record, Measurement):
                yield EarlierTrial(
                    trial=trial,
                    seconds=arrays.median(select_latency(record)).item(),
                    conclusive=is_conclusive(record),
                    cost=compute_cost(record),
                    facts=facts.get(facts_key(trial.workload, dict(trial.factors)), {}),
                )


def _read_dataset(data: Data, devices: Collection[str]) -> Iterator[EarlierTrial]:
    """Yield the measured trials of the networks that a dataset describes; UsageError for one that cannot help."""
    if not isinstance(data, Data):
        raise UsageError(f"invalid earlier: got a {type(data).__name__}; expected the dataset of a run, or its file.")
    sweep, facts = (json.loads(data.attrs.get(name) or "{}") for name in ("sweep", "facts"))
    workloads = {spec["name"]: Workload.from_json(spec) for spec in sweep.get("workloads", ())}
    if not workloads:
        raise UsageError(
            "invalid earlier: this dataset describes no network. Use the dataset of a run, or a merged one."
        )
    measured = list_labels(data, "device")
    if devices and not {*measured} & {*devices}:
        raise UsageError(
            f"invalid earlier: got measurements of {', '.join(measured)}; expected some of {', '.join(devices)}, as in "
            f"the sweep. For a machine that is alike, rename them: ds.assign_coords(device=['{next(iter(devices))}'])."
        )
    for node in nodes(data).values():
        yield from _read_node(expand_labels(node), workloads, facts)


def _read_node(
    node: xr.Dataset, workloads: Mapping[str, Workload], facts: Mapping[str, dict[str, Any]]
) -> Iterator[EarlierTrial]:
    node = node.transpose(*node["status"].dims, ...)
    latency = contention.select_samples(node)["latency"]
    medians = xr.apply_ufunc(arrays.median, latency, input_core_dims=[["repeat"]]).values
    conclusive = contention.conclusive(node).values
    means, samples = node["latency"].mean("repeat").values, node["latency"].notnull().sum("repeat").values
    compiling = node["compile_time"] + node["compile_time_warm"].fillna(0.0) + node["first_call_time"]
    compiling_s, calls, own_facts = compiling.values, node["calls_per_sample"].values, node["facts"].values
    for position, (name, factors, device, compiler, batch_size) in list_keys(node):
        workload = workloads.get(name)
        if workload is None or not samples[position]:
            continue
        own_factors = dict(factors)
        sample_s = compute_sample_s(json.loads(own_facts[position] or "{}"), samples[position].item())
        yield EarlierTrial(
            trial=Trial(
                workload=name,
                workload_id=workload.id,
                factors=tuple((factor, own_factors[factor]) for factor in workload.takes if factor in own_factors),
                compiler=compiler,
                device=device,
                batch_size=batch_size,
            ),
            seconds=medians[position].item(),
            conclusive=conclusive[position].item(),
            cost=Cost(compiling_s[position].item(), sample_s or means[position].item() * calls[position].item()),
            facts=facts.get(facts_key(name, own_factors), {}),
        )
