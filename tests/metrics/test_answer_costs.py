"""The cost of a precision has an interval over samples, and datasets without samples lack it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import synthetic
import xarray as xr
from drawn import LOW

from ngbkit import metrics
from ngbkit.api import Sweep
from ngbkit.dataset.assembly import assemble
from ngbkit.errors import MetricError
from ngbkit.metrics import contracts, frames, statistics, tables
from ngbkit.metrics.conclusions import describe_unasked_precision
from ngbkit.metrics.rendering import to_texts
from ngbkit.workloads.base import Workload

COST = {
    "evaluated_samples": 100,
    "agreement": 0.98,
    "relative_error": 0.05,
    "relative_error_sd": 0.02,
    "sqnr": 26.0,
    "sqnr_sd": 2.0,
}


def build_dataset(workload: Workload, accept: str | None) -> xr.Dataset:
    """Build a dataset of a column in f32 and one in bf16, which costs `COST`."""
    samples = np.random.default_rng(0).random((8, 16), np.float32)
    sweep = Sweep(workload, ["identity", LOW], repeats=20, calibrate={"x": samples}, accept=accept)
    records = [
        replace(record, contract=replace(record.contract, precision="bf16"), facts={**record.facts, **COST})
        if trial.compiler == LOW
        else record
        for trial, record in zip(sweep.trials(), synthetic.make_records(sweep), strict=True)
    ]
    return assemble(sweep, records)


def test_a_share_has_wilsons_interval() -> None:
    """The interval of 81 of 263 is that of Newcombe (1998), and none of 10 is not certain."""
    low, high = statistics.bound_share(xr.DataArray([81 / 263, 0.0]), xr.DataArray([263, 10]), 0.95)

    np.testing.assert_allclose([0.2553, 0.0], low, atol=5e-5)
    np.testing.assert_allclose([0.3662, 0.2775], high, atol=5e-5)


def test_costs_are_metrics_with_intervals(mlp: Workload) -> None:
    """Agreement, error and noise are methods of a dataset, each with its interval over samples."""
    ds = build_dataset(mlp, None)
    agreement, error, sqnr = (
        metrics.agreement(ds, ci=0.95),
        metrics.relative_error(ds, ci=0.95),
        ds.ngb.sqnr(ci=0.95),
    )
    trial = {"compiler": LOW, "batch_size": 1}

    assert 0.98 == float(agreement["agreement"].sel(trial).squeeze())
    assert [0.93, 0.994] == [round(float(agreement[end].sel(trial).squeeze()), 3) for end in ("ci_low", "ci_high")]
    assert 0.0539 == round(float(error["ci_high"].sel(trial).squeeze()), 4)
    assert 26.39 == round(float(sqnr["ci_high"].sel(trial).squeeze()), 2)
    assert bool(agreement["agreement"].sel(compiler="identity").isnull().all())
    assert "0.980 (0.930 to 0.994)" in to_texts(tables.compact(ds, "agreement")).to_text()
    assert {"agreement_low", "sqnr_high"} <= set(frames.to_dataframe(ds).columns)


def test_a_dataset_without_samples_has_no_costs(mlp: Workload) -> None:
    """Neither variables nor columns of tables tell of a cost that was not measured, and the error says the remedy."""
    sweep = Sweep(mlp, ["identity"], repeats=20)
    ds = assemble(sweep, synthetic.make_records(sweep))

    assert not set(COST) & {*ds.variables, *frames.to_dataframe(ds).columns}
    with pytest.raises(MetricError, match="Measure with calibrate=FILE"):
        ds.ngb.agreement()


@pytest.mark.parametrize(("accept", "differences"), [(None, {LOW: "precision bf16 instead of f32"}), ("sqnr>=20", {})])
def test_an_accepted_precision_is_compared(mlp: Workload, accept: str | None, differences: dict[str, str]) -> None:
    """A sweep that accepts a cost requests the comparison of the precisions that its labels name."""
    ds = build_dataset(mlp, accept)

    assert differences == contracts.list_differences(ds)
    # A number that its label asks for, with a note in each table; a rank only where its cost was accepted.
    assert metrics.speedup(ds).sel(compiler=LOW).notnull().all()
    assert (
        f"{LOW}: compared although unlike, precision bf16 instead of f32"
        in tables.compact(ds, "speedup").attrs["notes"]
    )
    assert (LOW in ds.ngb.ranking(unlike="mask")["compiler"].tolist()) == bool(accept)
    assert "bf16" == json.loads(str(ds["contract"].sel(compiler=LOW).values.ravel()[0]))["precision"]


def test_what_a_runtime_computes_unasked_is_said(mlp: Workload) -> None:
    """A runtime whose own default is bf16 is said to have it, with its gain or the line that adds the column."""
    ds = build_dataset(mlp, None)
    facts = ds["facts"].copy(data=np.full(ds["facts"].shape, json.dumps({"default_precision": "bf16"}), dtype=object))
    both = ds.assign(facts=facts).assign_coords(compiler=["openvino", LOW])
    (measured,), (missing,) = (describe_unasked_precision(data) for data in (both, both.sel(compiler=["openvino"])))

    assert measured.startswith(f"openvino, left alone, computes in bf16 on this chip: as {LOW}, ")
    assert measured.endswith(" times as fast.")
    assert f"openvino, left alone, computes in bf16 on this chip: add it by -c '{LOW}'." == missing
    assert [] == describe_unasked_precision(ds)


def test_a_lower_precision_is_over_its_own_f32_too(mlp: Workload) -> None:
    """The first screen of a run has both: over the baseline, and over f32 of the same runtime."""
    first = tables.build_report(build_dataset(mlp, None), ["speedup", "throughput"]).frames

    assert ["speed-up over identity", "speed-up over f32 of the same runtime"] == [frame.title for frame in first]
