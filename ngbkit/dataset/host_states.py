"""The states of the host in which samples were taken, by the readings of the probes around each piece of a turn."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ngbkit.hardware.host import PROBES

_COLUMNS = ("disturbed", *PROBES)
Readings = dict[str, NDArray[np.floating]]


def iterate_readings(dataset: xr.Dataset) -> Iterator[tuple[tuple[int, ...], Readings]]:
    """Yield the place of each trial with probes, and by sample what they measured, and whether other work disturbed.

    Trials of two sessions have no readings of all samples, and are left out.
    """
    *trial_dims, _ = dataset["latency"].dims
    facts = dataset["facts"].transpose(*trial_dims).values
    samples = dataset["latency"].notnull().sum("repeat").values
    for place in np.ndindex(facts.shape):
        host = json.loads(str(facts[place]) or "{}").get("host") or {}
        if sum(host.get("samples") or ()) == samples[place] > 0:
            yield place, {name: np.repeat(np.asarray(host[name], float), host["samples"]) for name in _COLUMNS}


def is_in(times: NDArray[np.floating], state: Mapping[str, float]) -> NDArray[np.bool_]:
    """Find which times of a probe are of a state; none is of any."""
    return (times < 0) | ((times >= state["low_s"]) & (times <= state["high_s"]))


def judge(dataset: xr.Dataset, devices: Mapping[str, Any]) -> xr.Dataset:
    """Judge the samples by what is known at the end of a run of the states of each device's host, by its description.

    A device marks a sample by what it knew until then, and a new machine knows nothing.
    """
    usual: dict[int, dict[str, Any]] = {}
    for index, label in enumerate(dataset["device"].values):
        states = devices.get(str(label), {}).get("states") or {}
        usual[index] = {name: states[name][0] for name in PROBES if states.get(name)}
    if not any(usual.values()) or "contended" not in dataset or "latency" not in dataset:
        return dataset
    contended, percent = dataset["contended"].copy(deep=True), dataset["unusual_percent"].copy(deep=True)
    axis = dataset["latency"].dims.index("device")
    for place, readings in iterate_readings(dataset):
        if states := usual[place[axis]]:
            is_usual = np.all([is_in(readings[name], state) for name, state in states.items()], axis=0)
            disturbed = readings["disturbed"] > 0
            contended.values[place][: len(disturbed)] = disturbed | ~is_usual
            percent.values[place] = 100 * np.mean(~is_usual & ~disturbed)
    return dataset.assign(contended=contended, unusual_percent=percent)
