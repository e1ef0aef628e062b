"""Geometric means over groups of networks."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from drawn import measured, network

from ngbkit import metrics
from ngbkit.errors import MetricError, UnknownNameError, UsageError
from ngbkit.metrics.metric import load_metrics

NAMES = ("resnet18", "resnet50", "vit_small")
GROUPS = {"resnet18": "convolutional", "resnet50": "convolutional", "vit_small": "transformer"}


@pytest.fixture
def data() -> xr.Dataset:
    return measured(*map(network, NAMES))


@pytest.mark.parametrize("name", ["speedup", "throughput", "rtr", "ase", "bsr"])
def test_a_mean_is_of_logarithms(data: xr.Dataset, name: str) -> None:
    """The groups stand where the networks stood, with the number of those behind each mean."""
    values = getattr(metrics, name)(data)
    means = data.ngb.mean(name, by=GROUPS)

    assert ["convolutional", "transformer"] == means["workload"].values.tolist()
    assert values.dims == means.dims
    np.testing.assert_allclose(
        np.sqrt(values.sel(workload="resnet18") * values.sel(workload="resnet50")),
        means.sel(workload="convolutional"),
    )
    np.testing.assert_allclose(values.sel(workload="vit_small"), means.sel(workload="transformer"))
    assert {2, 1} == set(means["networks"].values.ravel().tolist())
    assert f"geometric mean of the {load_metrics()[name].describe()}" == means.attrs["long_name"]


def test_a_mean_has_the_baseline_of_its_metric(data: xr.Dataset) -> None:
    """The reference is the chosen column, and a metric without one refuses it."""
    speedups = metrics.speedup(data, baseline="openvino")
    means = data.ngb.mean(by=GROUPS, baseline="openvino")
    with pytest.raises(UsageError, match="invalid baseline: got 'openvino', but throughput has none"):
        data.ngb.mean("throughput", baseline="openvino")

    np.testing.assert_allclose(speedups.sel(workload="vit_small"), means.sel(workload="transformer"))
    assert "openvino" in means.attrs["long_name"]


def test_families_are_the_default(data: xr.Dataset) -> None:
    """A function groups too, and a mapping leaves out what it lacks."""
    assert ["resnet", "vit"] == data.ngb.mean()["workload"].values.tolist()
    assert ["all"] == data.ngb.mean(by=lambda _: "all")["workload"].values.tolist()
    assert ["one"] == data.ngb.mean(by={"vit_small": "one"})["workload"].values.tolist()


def test_a_mean_has_an_interval(data: xr.Dataset) -> None:
    """The interval of a mean is narrower than those of its networks."""
    means = data.ngb.mean(by=lambda _: "all", ci=0.95)
    single = metrics.speedup(data, ci=0.95)
    width, widths = (np.log(part["ci_high"] / part["ci_low"]).sel(compiler="openvino") for part in (means, single))

    assert (means["ci_low"] <= means["speedup"]).all()
    assert (means["speedup"] <= means["ci_high"]).all()
    assert (width < widths.max("workload")).all()
    assert means["conclusive"].all()


def test_a_network_without_a_result_is_not_in_the_mean(data: xr.Dataset) -> None:
    """The number of networks tells; a group without any has no mean."""
    failed = (data["workload"] != "resnet18") & (data["workload"] != "vit_small")
    holed = data.assign(latency=data["latency"].where(failed | (data["compiler"] == "identity")))
    means = holed.ngb.mean(by=GROUPS, ci=0.95).sel(compiler="openvino")
    expected = metrics.speedup(data).sel(workload="resnet50", compiler="openvino")

    np.testing.assert_allclose(expected, means["speedup"].sel(workload="convolutional"))
    assert np.isfinite(means["ci_low"].sel(workload="convolutional")).all()
    assert [1, 1] == means["networks"].sel(workload="convolutional").values.ravel().tolist()
    assert means["speedup"].sel(workload="transformer").isnull().all()


def test_a_network_with_too_few_rounds_leaves_its_group_without_an_interval(data: xr.Dataset) -> None:
    """An interval without it would be of another mean."""
    few = (data["workload"] != "resnet18") | (data["round"] < 2)
    means = data.assign(latency=data["latency"].where(few)).ngb.mean(by=GROUPS, ci=0.95)

    assert means["speedup"].notnull().all()
    assert means["ci_low"].sel(workload="convolutional", compiler="openvino").isnull().all()
    assert means["ci_low"].sel(workload="transformer", compiler="openvino").notnull().all()


def test_an_inconclusive_network_unsettles_its_group(data: xr.Dataset) -> None:
    """A mean is inconclusive if a network of its group is, and other groups are not affected."""
    contended = (data["workload"] == "resnet18").broadcast_like(data["latency"]).astype(np.int8)
    means = data.assign(contended=contended).ngb.mean(by=GROUPS, ci=0.95).sel(compiler="openvino")

    assert [False, True] == means["conclusive"].isel(device=0, batch_size=0).values.tolist()


def test_errors_of_means(data: xr.Dataset) -> None:
    """An unknown metric and a grouping without networks are errors."""
    with pytest.raises(UnknownNameError, match="Did you mean speedup"):
        data.ngb.mean("speed-up")
    with pytest.raises(MetricError, match="no group for any of resnet18, resnet50, vit_small"):
        data.ngb.mean(by={"other": "a"})
