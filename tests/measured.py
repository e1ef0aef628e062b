"""Small datasets, written by hand."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
import xarray as xr
from hypothesis import settings

# A deadline would make a test fail because a machine is busy.
settings.register_profile("ngbkit", deadline=None)
settings.load_profile("ngbkit")

Labels = Mapping[str, Sequence[object]]


def build_rounds(coords: Mapping[str, Sequence[object]], latency: np.ndarray) -> xr.Dataset:
    """Build a dataset of one sample a round; its dims are the coordinates, in order, and `repeat`."""
    dims = (*coords, "repeat")
    rounds = np.broadcast_to(np.arange(latency.shape[-1], dtype=np.int32), latency.shape).copy()
    return xr.Dataset({"latency": (dims, latency), "round": (dims, rounds)}, coords)


@pytest.fixture
def measured() -> Callable[..., xr.Dataset]:
    """A function that makes a dataset of latencies; its dims are the labels, in order, and `repeat`."""

    def make(labels: Labels, latency_s: object, rounds: object = None) -> xr.Dataset:
        latency = np.array(latency_s, dtype=float)
        dims = (*labels, "repeat")
        dataset = xr.Dataset({"latency": (dims, latency)}, {dim: list(values) for dim, values in labels.items()})
        dataset["status"] = xr.where(dataset["latency"].notnull().any("repeat"), "ok", "failed").astype(object)
        dataset["error"] = xr.where(dataset["status"] == "ok", "", "boom").astype(object)
        if rounds is not None:
            dataset["round"] = (dims, np.array(rounds, dtype=np.int32))
        return dataset

    return make


@pytest.fixture
def scaling(measured) -> xr.Dataset:
    """Two compilers at batches 1 and 4, one sample each.

    Latency (s):     b=1   b=4      throughput (1/s):  b=1   b=4
    identity         0.5   1.0                         2     4
    fast             0.2   0.5                         5     8
    """
    labels = {"compiler": ["identity", "fast"], "batch_size": [1, 4]}
    return measured(labels, [[[0.5], [1.0]], [[0.2], [0.5]]])


@pytest.fixture
def deepening(measured) -> xr.Dataset:
    """Two compilers at depths 1, 2 and 4; speed-ups of `fast` are 2, 3 and 5."""
    labels = {"depth": [1, 2, 4], "compiler": ["identity", "fast"], "batch_size": [1]}
    return measured(labels, [[[[1.0]], [[0.5]]], [[[3.0]], [[1.0]]], [[[5.0]], [[1.0]]]])
