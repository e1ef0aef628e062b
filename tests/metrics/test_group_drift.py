"""The drift between groups: how far a machine moves throughputs, and where a reader is told."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import xarray as xr
from measured import build_rounds

from ngbkit import figures
from ngbkit.metrics import drift, tables

ROUNDS, COMPILERS = 20, ["identity", "a"]
HOSTED = json.dumps({"cpu": {"conditions": {"virtual_machine": True}}})


def build_run(
    shift: float = 0.0, *, networks: int = 6, batch_sizes: tuple[int, ...] = (1, 4), anchored: bool = True
) -> xr.Dataset:
    """Groups of two compilers whose pace moves by a normal deviate of `shift`, with anchors that show it."""
    generator = np.random.default_rng(0)
    coords = {
        "device": ["cpu"],
        "workload": [f"n{number}" for number in range(networks)],
        "compiler": COMPILERS,
        "batch_size": list(batch_sizes),
    }
    shape = (1, networks, 2, len(batch_sizes), ROUNDS)
    pace = np.exp(generator.normal(0, shift, (1, networks, 1, len(batch_sizes), 1)))
    data = build_rounds(coords, 0.01 * pace * np.exp(generator.normal(0, 0.001, shape)))
    data["status"] = (tuple(coords), np.full(shape[:-1], "ok", dtype=object))
    data["throughput"] = data["batch_size"] / data["latency"].median("repeat")
    data["error"] = xr.full_like(data["status"], "")
    if anchored:
        first = data.isel(compiler=0, drop=True)
        data["anchor_latency"] = first["latency"].where(data["batch_size"] != 1)
        data["anchor_round"] = first["round"]
    return data


@pytest.mark.parametrize("shift", [0.05, 0.3])
def test_anchors_tell_the_drift(shift: float) -> None:
    """Many anchors outweigh what is assumed of a machine."""
    estimate = drift.estimate_drifts(build_run(shift, networks=200))["cpu"]

    assert 200 == estimate.anchors
    assert shift == pytest.approx(estimate.sd, rel=0.2)


def test_without_anchors_it_is_assumed() -> None:
    """A virtual machine is assumed to drift more; the sentence says that nothing was measured."""
    data = build_run(0.3, anchored=False)
    hosted = data.assign_attrs(environments=HOSTED)

    assert drift.Drift(drift.APART_SD, 0) == drift.estimate_drifts(data)["cpu"]
    assert drift.Drift(drift.HOSTED_APART_SD, 0) == drift.estimate_drifts(hosted)["cpu"]
    assert "by their minutes: 14 % (standard deviation, assumed)" in drift.describe_drift(hosted)


def test_the_sentence_is_of_two_groups() -> None:
    """The sentence has the deviation of a quotient of two throughputs and the number of anchors."""
    data = build_run(0.2, networks=40)
    estimate = drift.estimate_drifts(data)["cpu"]

    assert (
        f"minutes: {100 * math.sqrt(2) * estimate.sd:.0f} % (standard deviation, 40 anchors)"
        in drift.describe_drift(data)
    )


def test_groups_that_took_turns_have_none() -> None:
    """One group, or one bundle of all networks, needs no allowance; two bundles do."""
    data = build_run(networks=4, batch_sizes=(1,))
    bundled = data.assign(bundle=xr.full_like(data["throughput"], 1.0))
    halves = data.assign(bundle=xr.zeros_like(data["throughput"]) + xr.DataArray([1.0, 1, 2, 2], dims="workload"))

    assert drift.describe_drift(data)
    assert not drift.describe_drift(data.isel(workload=[0]))
    assert not drift.describe_drift(data.isel(workload=0))
    assert not drift.describe_drift(bundled)
    assert not drift.describe_drift(data.assign_attrs(synthetic=1))
    assert drift.describe_drift(halves)


def test_only_absolute_numbers_have_the_remark() -> None:
    """A reader of throughputs sees it below the table and in the figure; a reader of speed-ups has no use for it."""
    data = build_run(0.2)
    sentence = drift.describe_drift(data)

    for figure in ("throughput", "latency"):
        assert sentence in tables.compact(data, figure).attrs["notes"]
    assert sentence not in tables.compact(data, "speedup").attrs["notes"]
    assert sentence not in tables.compact(data, "throughput", select={"workload": "n0", "batch_size": 1}).attrs["notes"]
    assert sentence in figures.throughput(data).to_dict()["title"]["subtitle"]
    assert sentence not in figures.speedup(data).to_dict()["title"]["subtitle"]
    assert sentence not in figures.throughput(data, workload="n0", batch_size=1).to_dict()["title"]["subtitle"]
