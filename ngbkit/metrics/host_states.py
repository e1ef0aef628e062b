"""Metrics in a state of the host: a deployment on a virtual machine lives in all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from ngbkit.dataset.contention import compute_medians
from ngbkit.dataset.environments import read_environments
from ngbkit.dataset.host_states import is_in, iterate_readings
from ngbkit.dataset.long_form import expand_labels, list_labels, to_frame
from ngbkit.errors import MetricError, UnknownNameError
from ngbkit.hardware.host import PROBES
from ngbkit.metrics.metric import load_metrics
from ngbkit.sweep.variables import NO_ROUND

_UNITS = {"trip_s": (1e9, "ns"), "work_s": (1e6, "µs")}


def list_states(device: Mapping[str, Any], probe: str) -> dict[str, Mapping[str, float]]:
    """List the states of the host of a device by the time of a probe in them, the usual one first."""
    scale, unit = _UNITS[probe]
    states = (device.get("states") or {}).get(probe) or []
    return {f"{scale * each['mean_s']:.3g} {unit}": each for each in states}


def by_state(dataset: xr.Dataset, metric: str = "speedup", **options: Any) -> pd.DataFrame:
    """A metric with a row per trial and state of the host, by the samples that were taken in that state.

    Parameters
    ----------
    dataset
        The dataset of a run whose device has probes.
    metric
        The name of a metric of each trial, such as ``"speedup"`` or ``"throughput"``.
    **options
        Of that metric.

    Returns
    -------
    pandas.DataFrame
        The labels of the trial; ``state``, by the time in which a cache line goes from one core to another and back,
        and by that of arithmetic, the usual one first; the metric, ``ci_low``, ``ci_high``, ``conclusive``. Trials
        without a sample in a state have no row of it.

    Raises
    ------
    UnknownNameError
        There is no such metric.
    MetricError
        No device has probes that tell several states.
    """
    metrics = load_metrics()
    if metric not in metrics:
        raise UnknownNameError("metric", metric, metrics)
    dataset = expand_labels(dataset)
    parts = []
    for label, states in _combine_states(dataset).items():
        for name, ranges in states.items():
            selected = _select(dataset.sel(device=[label]), ranges)
            values = metrics[metric].to_function()(selected, ci=0.95, **options)
            frame = to_frame(values[[each for each in (metric, "ci_low", "ci_high", "conclusive") if each in values]])
            frame.insert([*frame.columns].index(metric), "state", name)
            parts.append(frame[frame[metric].notna()])
    return pd.concat(parts, ignore_index=True)


def in_state(dataset: xr.Dataset, state: str) -> xr.Dataset:
    """Select the samples that were taken in one state of the host, in place of the usual one.

    Parameters
    ----------
    dataset
        The dataset of a run whose device has probes.
    state
        A state by its times, as `by_state` names it: ``"560 ns"``.

    Returns
    -------
    xarray.Dataset
        Of the devices that have this state; every report and figure of it is one of this state. Trials without a
        sample in it have no values.

    Raises
    ------
    UnknownNameError
        No device has this state.
    MetricError
        No device has probes that tell several states.

    Examples
    --------
    >>> dataset.ngb.in_state("560 ns").ngb.speedup(ci=0.95)  # doctest: +SKIP
    """
    dataset = expand_labels(dataset)
    by_device = _combine_states(dataset)
    ranges = {label: states[state] for label, states in by_device.items() if state in states}
    if not ranges:
        raise UnknownNameError("state", state, dict.fromkeys(name for states in by_device.values() for name in states))
    parts = [_select(dataset.sel(device=[label]), each) for label, each in ranges.items()]
    environments = json.loads(dataset.attrs["environments"])
    for label, each in ranges.items():  # the first is the one that a report is of
        for probe, selected in each.items():
            environments[label]["states"][probe].sort(key=lambda candidate, selected=selected: candidate != selected)
    attrs = {**dataset.attrs, "environments": json.dumps(environments)}
    return xr.concat(parts, "device").assign_attrs(attrs)


def _combine_states(dataset: xr.Dataset) -> dict[str, dict[str, dict[str, Mapping[str, float]]]]:
    """Combine the states of all probes, by name, for each device whose probes tell several."""
    devices, combined = read_environments(dataset), {}
    for label in map(str, list_labels(dataset, "device")):
        probes = [list_states(devices.get(label, {}), probe).items() or [("", None)] for probe in PROBES]
        if len(states := [*product(*probes)]) > 1:
            combined[label] = {
                ", ".join(name for name, _ in state if name): {
                    probe: each for probe, (_, each) in zip(PROBES, state, strict=True) if each is not None
                }
                for state in states
            }
    if not combined:
        raise MetricError(
            "no device of this dataset has several states of its host: its probes have seen one way in which the cores "
            "run, have fewer than 300 readings, or were missing. `ds.ngb.environments()` has what they saw."
        )
    return combined


def _select(dataset: xr.Dataset, states: Mapping[str, Mapping[str, float]]) -> xr.Dataset:
    """Select the samples in a state of the host; of these, those beside other work are contended still."""
    *trial_dims, _ = dims = dataset["latency"].dims
    is_in_state, is_disturbed = np.zeros((2, *dataset["latency"].shape), bool)
    for place, readings in iterate_readings(dataset):
        count = len(readings["disturbed"])
        is_in_state[place][:count] = np.all([is_in(readings[probe], each) for probe, each in states.items()], axis=0)
        is_disturbed[place][:count] = readings["disturbed"] > 0
    included = xr.DataArray(is_in_state, dims=dims)
    latency = dataset["latency"].where(included)
    medians = xr.apply_ufunc(compute_medians, latency, input_core_dims=[["repeat"]])
    return dataset.assign(
        latency=latency,
        round=dataset["round"].where(included, NO_ROUND),
        contended=xr.DataArray((is_in_state & is_disturbed).astype(dataset["contended"].dtype), dims=dims),
        throughput=(dataset["batch_size"] / medians).transpose(*trial_dims),
    )
