"""Waves of processes: what they differ by is measured, and intervals have the width of it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr
from measured import build_rounds

from ngbkit import metrics
from ngbkit.metrics import ratios, waves
from ngbkit.metrics.disturbances import describe_allowance
from ngbkit.metrics.draws import UNCHECKED_SD
from ngbkit.sweep.variables import WAVE_STRIDE

COMPILERS, TRUE = ["identity", "a", "b"], np.array([1.0, 1.5, 2.5])


def build_waves(
    process_sd: float, *, count: int = 3, rounds: int = 10, devices: int = 40, networks: int = 6, drift: float = 0.05
) -> xr.Dataset:
    """Trials of which each wave has a process, and a pace of its minute, of its own."""
    generator = np.random.default_rng(0)
    shape = (devices, networks, len(COMPILERS), 1)
    parts = [
        generator.normal(0, process_sd / np.sqrt(2), (*shape, 1))
        + generator.normal(0, 0.01, (*shape, rounds))
        + generator.normal(0, drift, (devices, networks, 1, 1, 1))
        for _ in range(count)
    ]
    coords: dict[str, list[object]] = {
        "device": [f"d{number}" for number in range(devices)],
        "workload": [f"n{number}" for number in range(networks)],
        "compiler": [*COMPILERS],
        "batch_size": [1],
    }
    data = build_rounds(coords, 0.01 * np.exp(np.concatenate(parts, axis=-1)) / TRUE[:, None, None])
    numbers = np.concatenate([wave * WAVE_STRIDE + np.arange(rounds) for wave in range(count)])
    return data.assign(round=(data["latency"].dims, np.broadcast_to(numbers, data["latency"].shape).astype(np.int32)))


@pytest.mark.parametrize("process_sd", [0.005, 0.02, 0.08])
def test_intervals_cover_what_processes_do(process_sd: float) -> None:
    """Intervals cover the true speed-up in 93 to 98 % of 480 trials, however much processes differ."""
    speedup = metrics.speedup(build_waves(process_sd), ci=0.95).sel(compiler=COMPILERS[1:])
    truth = xr.DataArray(TRUE[1:], dims="compiler")
    covered = (speedup["ci_low"] <= truth) & (truth <= speedup["ci_high"])

    assert 0.93 <= float(covered.mean()) <= 0.985


def test_processes_that_agree_make_intervals_narrow() -> None:
    """The deviation of a column falls below what is assumed of one process, and rises above it where they differ."""
    agree, differ = (ratios.prepare(build_waves(sd, devices=1))["process_sd"].sel(compiler="a") for sd in (0.0, 0.08))
    single = ratios.prepare(build_waves(0.08, devices=1, count=1))["process_sd"].sel(compiler="a")

    assert float(agree.max()) < UNCHECKED_SD / np.sqrt(2) < 0.01 < float(differ.min())
    assert pytest.approx(UNCHECKED_SD / np.sqrt(2)) == float(single.max())


def test_more_waves_do_not_reduce_what_hours_do() -> None:
    """A history of 5 % between hours stays where the waves of a run agree."""
    data = build_waves(0.0, devices=1)
    history = {"d0": {"history": {"deviations": {"a": 0.05}}}}
    deviation = ratios.prepare(data.assign_attrs(environments=json.dumps(history)))["process_sd"]

    assert 0.05 == pytest.approx(float(deviation.sel(compiler="a").mean()), rel=0.1)
    assert float(deviation.sel(compiler="b").max()) < 0.02


def test_a_wave_that_a_column_lacks_does_not_count() -> None:
    """Its rounds stay where they are, so that a ratio within it is still one of the same minutes."""
    data = build_waves(0.0, devices=1, networks=1, drift=0.5)
    is_second = (data["round"] >= WAVE_STRIDE) & (data["round"] < 2 * WAVE_STRIDE)
    data["latency"] = data["latency"].where((data["compiler"] != "b") | is_second)
    data["round"] = data["round"].where(data["latency"].notnull(), -1)
    medians, numbers = ratios._compute_round_medians(data, anchored=False)
    moved, counts = waves.center(medians, numbers)

    assert (counts == 1).all()
    xr.testing.assert_allclose(medians, moved)
    assert 2.5 == pytest.approx(metrics.speedup(data).sel(compiler="b").item(), rel=0.02)


def test_a_wave_beside_other_work_does_not_count() -> None:
    """The other one is left, for which a deviation is assumed, and the verdict says so."""
    hosted = json.dumps({"d0": {"conditions": {"virtual_machine": True}}})
    data = build_waves(0.0, count=2, devices=1).assign_attrs(environments=hosted)
    marks = [xr.zeros_like(data["round"]), (data["round"] < WAVE_STRIDE).astype(np.int32)]
    quiet, disturbed = (data.assign(contended=mark) for mark in marks)

    assert [] == describe_allowance(quiet)
    assert "5 % (standard deviation, assumed)" in describe_allowance(disturbed)[0]
    assert 0.05 / np.sqrt(2) == pytest.approx(float(ratios.prepare(disturbed)["process_sd"].max()))


def test_a_short_wave_counts_less() -> None:
    """Ten rounds and one are hardly more than one wave."""
    data = build_waves(0.02, count=2, devices=1, networks=1)
    data["latency"] = data["latency"].where(data["round"] <= WAVE_STRIDE)
    medians, numbers = ratios._compute_round_medians(data, anchored=False)

    assert (waves.center(medians, numbers)[1].round(2) == round(11**2 / (10**2 + 1), 2)).all()
