"""A metric in each state of the host: a deployment on a virtual machine lives in all of them."""

from __future__ import annotations

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
    dataset, devices = expand_labels(dataset), read_environments(dataset)
    parts = []
    for label in list_labels(dataset, "device"):
        probes = [list_states(devices.get(str(label), {}), probe).items() or [("", None)] for probe in PROBES]
        states = [*product(*probes)]
        for state in states if len(states) > 1 else ():
            ranges = {probe: each for probe, (_, each) in zip(PROBES, state, strict=True) if each is not None}
            values = metrics[metric].to_function()(_select(dataset.sel(device=[label]), ranges), ci=0.95, **options)
            frame = to_frame(values[[name for name in (metric, "ci_low", "ci_high", "conclusive") if name in values]])
            name = ", ".join(filter(None, [name for name, _ in state]))
            frame.insert([*frame.columns].index(metric), "state", name)
            parts.append(frame[frame[metric].notna()])
    if not parts:
        raise MetricError(
            "no device of this dataset has several states of its host: its probes have seen one way in which the cores "
            "run, have fewer than 300 readings, or were missing. `ds.ngb.environments()` has what they saw."
        )
    return pd.concat(parts, ignore_index=True)


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
