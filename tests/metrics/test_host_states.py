"""A metric in each state of the host, by the samples that were taken in it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import synthetic
import xarray as xr

import ngbkit
from ngbkit import Sweep
from ngbkit.dataset import host_states
from ngbkit.errors import MetricError, UnknownNameError
from ngbkit.metrics.disturbances import describe_states
from ngbkit.workloads.base import Workload

NEAR_S, APART_S = 2e-7, 5.6e-7
# Two pieces a round, of three samples each.
TRIPS_S, SAMPLES = [NEAR_S, APART_S] * synthetic.ROUNDS, [3] * (2 * synthetic.ROUNDS)
IS_APART = np.repeat([trip_s == APART_S for trip_s in TRIPS_S], SAMPLES)


def build_states(*ways: tuple[float, float]) -> dict[str, Any]:
    states = [
        {"low_s": 0.95 * trip_s, "high_s": trip_s / 0.95, "mean_s": trip_s, "share": share} for trip_s, share in ways
    ]
    return {"cpu": {"states": {"trip_s": states, "work_s": []}}}


def measure(disturbed: bool = False) -> xr.Dataset:
    """Measure a network whose cores are apart in every other piece, where OpenVINO takes twice as long."""
    network = Workload(name="net", source="timm", spec={"name": "net"})
    data = synthetic.make_dataset(Sweep(network, ["identity", "openvino"], [1, 4], repeats=6 * synthetic.ROUNDS))
    assert isinstance(data, xr.Dataset)
    slow = xr.DataArray(np.where(IS_APART, 2.0, 1.0), dims="repeat")
    data["latency"] = data["latency"].where(data["compiler"] != "openvino", data["latency"] * slow)
    data["contended"] = xr.zeros_like(data["contended"]) + xr.DataArray(IS_APART.astype(float), dims="repeat")
    host = {"rounds": np.repeat(range(synthetic.ROUNDS), 2).tolist(), "samples": SAMPLES, "trip_s": TRIPS_S}
    host |= {"work_s": [1.6e-5] * len(SAMPLES)}
    host["disturbed"] = [int(disturbed)] * len(SAMPLES)
    data["facts"] = xr.full_like(data["facts"], json.dumps({"host": host}))
    data.attrs["environments"] = json.dumps(build_states((NEAR_S, 0.9), (APART_S, 0.1)))
    return data


def test_each_state_has_its_own_ratio() -> None:
    """A column that slows down by half while the cores are apart has half of its speed-up there."""
    rows = measure().ngb.by_state()
    openvino = rows[rows["compiler"] == "openvino"].set_index(["state", "batch_size"])["speedup"].unstack()

    assert {"200 ns", "560 ns"} == {*rows["state"]}
    assert pytest.approx(2.0, rel=0.05) == (openvino.loc["200 ns"] / openvino.loc["560 ns"]).mean()
    assert rows["conclusive"].all()
    assert (rows["ci_low"] <= rows["speedup"]).all()


def test_a_report_is_of_the_state_that_is_named() -> None:
    """Its values are those of `by_state`, its verdict names the state first; another name is an error that lists it."""
    data = measure()
    rows = data.ngb.by_state().set_index(["state", "compiler", "batch_size"])["speedup"]
    selected = data.ngb.in_state("560 ns")
    with pytest.raises(UnknownNameError, match=r"200 ns.*560 ns"):
        data.ngb.in_state("far")

    expected = [rows["560 ns", "openvino", batch_size] for batch_size in (1, 4)]
    assert expected == pytest.approx(selected.ngb.speedup().sel(compiler="openvino").values.ravel().tolist())
    assert "takes 560 ns in 10 %, 200 ns in 90 % of the readings" in describe_states(selected)[0]
    assert data.sizes == selected.sizes


def test_other_work_stays_contended_in_every_state() -> None:
    """Samples beside other work make no ratio of a state conclusive."""
    rows = measure(disturbed=True).ngb.by_state("throughput")

    assert {"identity", "openvino"} == {*rows["compiler"]}
    assert not rows["conclusive"].any()


def test_a_run_is_judged_by_what_is_known_at_its_end() -> None:
    """A machine that knew nothing of its host when a group was measured: the samples of the rare state are marked."""
    data = measure()
    data["contended"] = xr.zeros_like(data["contended"])
    data["unusual_percent"] = xr.zeros_like(data["throughput"])
    devices = build_states((NEAR_S, 0.9), (APART_S, 0.1))
    judged = host_states.judge(data, devices)

    assert (judged["contended"] == xr.DataArray(IS_APART, dims="repeat")).all()
    assert (judged["unusual_percent"] == 50).all()
    assert 0 == host_states.judge(data, {"cpu": {"states": {"trip_s": []}}})["contended"].sum()
    # A second session's readings are not those of the first one's samples.
    assert 0 == host_states.judge(data.isel(repeat=slice(-6)), devices)["contended"].sum()


def test_a_dataset_without_several_states_is_an_error() -> None:
    """The error says why: one way, or too few readings; an unknown metric is one, too."""
    data = measure()
    with pytest.raises(UnknownNameError, match="speedup"):
        data.ngb.by_state("speedups")
    for states in (build_states((NEAR_S, 1.0)), {}):
        data.attrs["environments"] = json.dumps(states)
        with pytest.raises(MetricError, match="no device of this dataset has several states"):
            data.ngb.by_state()


def test_a_file_has_what_the_view_needs(tmp_path: Any) -> None:
    """A saved dataset has the same rows."""
    data = measure()
    ngbkit.save(data, tmp_path / "data.nc")

    assert data.ngb.by_state().equals(ngbkit.load(tmp_path / "data.nc").ngb.by_state())
