"""The front of size and speed."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from measured import build_rounds

from ngbkit.errors import MetricError


def build(seconds: dict[str, float], noise: float = 0.01) -> xr.Dataset:
    """Four networks of 1 to 4 parameters, in 20 rounds."""
    generator = np.random.default_rng(0)
    latency = np.array(list(seconds.values()))[:, None] * generator.normal(1, noise, (len(seconds), 20))
    coords = {"device": ["cpu"], "workload": list(seconds), "compiler": ["identity"], "batch_size": [1]}
    data = build_rounds(coords, latency.reshape(1, len(seconds), 1, 1, 20))
    return data.assign_coords(parameters=("workload", np.arange(1.0, len(seconds) + 1)))


def test_what_a_larger_network_exceeds_is_behind() -> None:
    """The largest is on the front, however slow; a smaller one if it is faster than all that are larger."""
    front = build({"a": 2.0, "b": 1.0, "c": 4.0, "d": 3.0}).ngb.front()

    assert {"a": False, "b": True, "c": False, "d": True} == dict(
        zip(front["workload"], front["on_front"], strict=True)
    )
    assert [0.0, 1.0, 0.0, 1.0] == front["probability"].tolist()
    assert [1.0, 2.0, 3.0, 4.0] == front["parameters"].tolist()
    np.testing.assert_allclose([0.5, 1, 0.25, 1 / 3], front["throughput"], rtol=0.02)


def test_two_that_are_equally_fast_share_the_front() -> None:
    """The smaller one is on it in about every second replicate."""
    front = build({"a": 1.0, "b": 1.0}, noise=0.1).ngb.front().set_index("workload")

    assert 0.02 < front["probability"]["a"] < 0.98
    assert 1.0 == front["probability"]["b"]


def test_factors_make_configurations(deepening: xr.Dataset) -> None:
    """Each compiler and batch size has its own front; without rounds no probability is known."""
    data = deepening.assign_coords(workload="conv", device="cpu", parameters=("depth", [4.0, 2.0, 1.0]))
    front = data.ngb.front()

    assert ["workload", "depth", "device", "batch_size", "compiler"] == list(front.columns[:5])
    assert [("fast", 1, True), ("fast", 2, False), ("fast", 4, False)] == [
        (row.compiler, row.depth, row.on_front) for row in front[front["compiler"] == "fast"].itertuples()
    ]
    assert front["probability"].isna().all()


def test_what_was_not_measured_is_on_no_front() -> None:
    """A failure hides no other network."""
    data = build({"a": 2.0, "b": 1.0})
    front = data.assign(latency=data["latency"].where(data["workload"] != "b")).ngb.front()

    assert [("a", True)] == list(front[["workload", "on_front"]].itertuples(index=False, name=None))


def test_a_size_must_be_known() -> None:
    """The error lists those of the dataset."""
    with pytest.raises(MetricError, match="got 'macs', and this dataset has parameters"):
        build({"a": 1.0}).ngb.front("macs")
