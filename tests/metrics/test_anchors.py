"""Anchors: the baseline beside each group ties together groups measured at different times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from measured import build_rounds
from synthetic_records import build_network, build_record

import ngbkit.metrics  # noqa: F401  gives datasets their `ngb`
from ngbkit.api import Sweep
from ngbkit.dataset import assembly as datasets
from ngbkit.metrics.drift import APART_SD
from ngbkit.sweep.records import Measurement
from ngbkit.sweep.trials import Trial

SWEEP = Sweep(build_network("net"), ["identity", "openvino"], [1, 4], repeats=6)
# Seconds per call on a quiet machine. Openvino: T(4) / T(1) = (4 / 0.100) / (1 / 0.050) = 2; identity: 1.6 / 1 = 1.6.
QUIET = {("identity", 1): 0.1, ("identity", 4): 0.25, ("openvino", 1): 0.05, ("openvino", 4): 0.1}


def measurement(trial: Trial, slowness: float) -> Measurement:
    """Six samples in three rounds, on a machine that was slowed by the factor `slowness`."""
    drift = slowness * np.array([1, 1, 1.5, 1.5, 1.2, 1.2])
    return build_record(trial, QUIET[trial.compiler, trial.batch_size] * drift, samples=2)


def measured(slowness_of_four: float, anchored: bool = True) -> xr.Dataset:
    """A sweep whose group of batch size 4 was measured while the machine was slowed."""
    records = []
    for group in SWEEP.groups():
        slowness = slowness_of_four if group.batch_size == 4 else 1.0
        anchors = [group.anchor] if group.anchor is not None and anchored else []
        records += [measurement(trial, slowness) for trial in [*group.trials, *anchors]]
    return datasets.assemble(SWEEP, records)


@pytest.mark.parametrize("slowness", [1.0, 3.0, 0.5])
def test_drift_between_groups_cancels_in_rtr_and_ase(slowness: float) -> None:
    """The rates are those of a quiet machine, whatever happened in between."""
    dataset = measured(slowness)

    np.testing.assert_allclose([[1, 1.6], [1, 2]], dataset.ngb.rtr().values.squeeze())
    np.testing.assert_allclose([[1, 0.4], [1, 0.5]], dataset.ngb.ase().values.squeeze())


def test_rates_can_be_compared_untied() -> None:
    """The parameter `normalised` shows the effect of anchors."""
    dataset = measured(3.0)

    np.testing.assert_allclose([[1, 1.6 / 3], [1, 2 / 3]], dataset.ngb.rtr(normalised=False).values.squeeze())
    np.testing.assert_allclose([[1, 0.4 / 3], [1, 0.5 / 3]], dataset.ngb.ase(normalised=False).values.squeeze())


def test_without_anchors_the_rates_are_compared_as_they_are() -> None:
    """Rates are compared as measured, with the drift of the machine, where no group or a single one has no anchor."""
    unanchored, missing = measured(3.0, anchored=False), measured(3.0)
    missing["anchor_latency"][:] = np.nan

    assert "anchor_latency" not in unanchored
    for dataset in (unanchored, missing):
        np.testing.assert_allclose([[1, 1.6 / 3], [1, 2 / 3]], dataset.ngb.rtr().values.squeeze())


def test_an_anchor_is_no_trial_of_the_dataset(tmp_path: Path) -> None:
    """An anchor has its own variables, along all dims but the compiler, and survives a file."""
    dataset = measured(3.0)
    datasets.save(dataset, tmp_path / "a.nc")
    loaded = datasets.load(tmp_path / "a.nc")

    assert (1, 1, 2, 2) == dataset["status"].shape
    assert ("device", "workload", "batch_size", "repeat") == dataset["anchor_latency"].dims
    assert [0, 6] == dataset["anchor_latency"].notnull().sum("repeat").values.ravel().tolist()
    assert {-1, 0, 1, 2} == set(dataset["anchor_round"].values.ravel().tolist())
    xr.testing.assert_identical(dataset, loaded)


@pytest.mark.parametrize(("name", "true"), [("rtr", 1.0), ("ase", 0.25)])
def test_without_the_baseline_an_interval_has_the_drift_between_groups(name: str, true: float) -> None:
    """Groups that differ by the assumed drift are within the interval, which their rounds alone are not."""
    generator = np.random.default_rng(0)
    rounds, networks, sizes = 20, 200, [1, 4]
    slowness = np.exp(generator.normal(0, APART_SD, (1, networks, 1, len(sizes), 1)))
    latency = np.array(sizes)[:, None] * slowness * np.exp(generator.normal(0, 0.01, (1, networks, 1, 2, rounds)))
    names = [f"n{place}" for place in range(networks)]
    data = build_rounds({"device": ["cpu"], "workload": names, "compiler": ["openvino"], "batch_size": sizes}, latency)
    interval = getattr(data.ngb, name)(ci=0.95).sel(batch_size=4)

    covered = (interval["ci_low"] <= true) & (interval["ci_high"] >= true)
    assert 0.9 < float(covered.mean()) < 1
