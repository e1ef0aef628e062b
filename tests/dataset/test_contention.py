"""Which samples an estimate uses, and which trials are conclusive."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import xarray as xr
from synthetic_records import build_record

from ngbkit import metrics
from ngbkit.api import Sweep
from ngbkit.dataset import contention
from ngbkit.dataset.assembly import assemble
from ngbkit.workloads.base import Workload

ROUNDS = 12


def measure(sweep: Sweep, contended: dict[str, Sequence[int]], slow: float = 3.0) -> xr.Dataset:
    """Two samples a round; identity takes 2 s and onnxruntime 1 s, where they are not contended."""
    records = [
        build_record(
            trial,
            [
                (2.0 if trial.compiler == "identity" else 1.0)
                * (slow if index in contended.get(trial.compiler, ()) else 1.0)
                for index in range(2 * ROUNDS)
            ],
            samples=2,
            contended_samples=tuple(contended.get(trial.compiler, ())),
        )
        for trial in sweep.trials()
    ]
    data = assemble(sweep, records)
    assert isinstance(data, xr.Dataset)
    return data


@pytest.fixture
def sweep(mlp: Workload) -> Sweep:
    return Sweep(mlp, ["identity", "onnxruntime"], repeats=2 * ROUNDS)


def test_an_estimate_leaves_contended_samples_out(sweep: Sweep) -> None:
    """An estimate omits contended samples if half of the rounds are uncontended."""
    data = measure(sweep, {"identity": range(12)})

    assert contention.conclusive(data).all()
    assert 2.0 == metrics.speedup(data).sel(compiler="onnxruntime").item()
    assert [0.5, 1.0] == data["throughput"].values.ravel().tolist()


def test_a_round_needs_one_uncontended_sample(sweep: Sweep) -> None:
    """The rest of a round can be contended."""
    data = measure(sweep, {"identity": range(0, 24, 2)})

    assert contention.conclusive(data).all()
    assert 2.0 == metrics.speedup(data).sel(compiler="onnxruntime").item()


def test_too_few_uncontended_rounds_leave_a_trial_inconclusive(sweep: Sweep) -> None:
    """A trial with too few uncontended rounds, and every ratio with it, is inconclusive."""
    data = measure(sweep, {"identity": range(14)})
    result = metrics.speedup(data, ci=0.95)
    rates = metrics.throughput(data, ci=0.95)

    assert [False, True] == contention.conclusive(data).values.ravel().tolist()
    assert [False, True] == rates["conclusive"].values.ravel().tolist()
    assert [False, False] == result["conclusive"].values.ravel().tolist()
    assert 6.0 == result["speedup"].sel(compiler="onnxruntime").item()


def test_few_rounds_are_conclusive_if_nothing_contended_them(sweep: Sweep) -> None:
    """Few uncontended rounds are conclusive, although they have no interval."""
    data = measure(sweep, {}).isel(repeat=slice(0, 4))

    assert contention.conclusive(data).all()
    assert np.isnan(metrics.speedup(data, ci=0.95)["ci_low"]).all()


def test_all_contended_samples_can_be_dropped(sweep: Sweep) -> None:
    """`uncontended` drops all contended samples, including those of inconclusive trials."""
    data = measure(sweep, {"identity": range(20), "onnxruntime": [0]})
    quiet = contention.uncontended(data)

    assert [4, 23] == quiet["latency"].notnull().sum("repeat").values.ravel().tolist()
    assert data["latency"].attrs == quiet["latency"].attrs


def test_a_dataset_of_others_is_conclusive(sweep: Sweep) -> None:
    """Published values have neither samples nor marks."""
    data = measure(sweep, {"identity": range(20)}).drop_vars(["latency", "round", "contended"])

    assert contention.conclusive(data).all()
    assert data is contention.uncontended(data)


def test_a_tied_metric_needs_a_conclusive_anchor(sweep: Sweep) -> None:
    """A normalised metric is inconclusive if its anchor is contended."""
    single = measure(sweep, {})
    data = xr.concat([single, single.assign_coords(batch_size=[4])], "batch_size")
    anchors = {name: data[name].sel(compiler="identity", drop=True) for name in ("latency", "round", "contended")}
    data = data.assign({f"anchor_{name}": values for name, values in anchors.items()})
    shaken = data.assign(anchor_contended=(data["anchor_round"] >= 0).astype(np.int8))

    assert metrics.ase(data, ci=0.95)["conclusive"].all()
    assert not metrics.ase(shaken, ci=0.95)["conclusive"].sel(compiler="onnxruntime", batch_size=4).any()
