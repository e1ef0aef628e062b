"""The roofline, by hand."""

import json

import numpy as np
import pytest
import xarray as xr

from ngbkit.errors import MetricError


@pytest.fixture
def counted(measured) -> xr.Dataset:
    """Two networks at batch sizes 1 and 4 on two devices; a call takes 0.1 s, and twice that on the second device."""
    labels = {"device": ["cpu", "old"], "workload": ["dense", "wide"], "compiler": ["identity"], "batch_size": [1, 4]}
    latency = np.broadcast_to(np.array([0.1, 0.2])[:, None, None, None, None], (2, 2, 1, 2, 1))
    facts = {"macs": [5e8, 1e6], "weight_bytes": [1e6, 4e6], "input_bytes": [5e5, 5e5], "output_bytes": [5e5, 5e5]}
    dataset = measured(labels, latency).assign_coords({name: ("workload", values) for name, values in facts.items()})
    peaks = {"cpu": {"peaks": {"flops": 2e10, "bytes_per_s": 1e8, "threads": 2}}, "old": {}}
    return dataset.assign_attrs(environments=json.dumps(peaks))


def test_roofline(counted):
    """At batch 1 `dense` does 1e9 operations in 0.1 s, half the peak, and moves 2 MB, a fifth of the peak."""
    rates = counted.ngb.roofline().sel(device="cpu", compiler="identity")
    single = rates.sel(workload="dense", batch_size=1)

    assert (1e10, 2e7, 500, "compute", 0.5) == tuple(
        pytest.approx(value) if isinstance(value, float) else value
        for value in (single[name].item() for name in single)
    )
    # At batch 4 four times the operations, and 1 MB of weights once beside 4 MB of inputs and outputs.
    batch = rates.sel(workload="dense", batch_size=4)
    assert [4e10, 5e7, 2.0] == pytest.approx([batch[name].item() for name in ("flops", "bytes_per_s", "fraction")])
    assert "memory" == rates["bound"].sel(workload="wide", batch_size=1)  # 2e6 operations, 5 MB
    assert pytest.approx(0.5) == rates["fraction"].sel(workload="wide", batch_size=1).item()


def test_everything_is_described(counted):
    """Units, names, and the dims of every other metric."""
    rates = counted.ngb.roofline()

    units = {"flops": "s-1", "bytes_per_s": "byte s-1", "intensity": "byte-1", "bound": "", "fraction": "1"}
    assert units == {name: values.attrs["units"] for name, values in rates.items()}
    assert {counted["status"].dims} == {values.dims for values in rates.values()}


def test_a_device_without_peaks_has_rates_and_no_fraction(counted):
    """A device without peaks has rates, and no fraction or bound."""
    rates = counted.ngb.roofline().sel(device="old")

    assert rates["flops"].notnull().all()
    assert rates["fraction"].isnull().all()
    assert (rates["bound"] == "").all()


def test_a_gpu_is_not_compared_with_its_cpu(counted):
    """The stored peaks of a device that measures on a GPU are those of its CPU."""
    described = json.loads(counted.attrs["environments"])
    described["cpu"]["accelerator"] = "cuda:0"

    with pytest.raises(MetricError, match=r"none were measured for cpu, old.*; it measures no peaks of a GPU"):
        counted.assign_attrs(environments=json.dumps(described)).ngb.roofline()


def test_a_roofline_says_what_it_lacks(counted):
    """The error lists the missing counts, or the devices without peaks."""
    with pytest.raises(MetricError, match="this dataset lacks macs, output_bytes"):
        counted.drop_vars(["macs", "output_bytes"]).ngb.roofline()
    with pytest.raises(MetricError, match="none were measured for old"):
        counted.sel(device=["old"]).ngb.roofline()
    with pytest.raises(MetricError, match=r"none were measured for cpu, old"):
        counted.drop_attrs().ngb.roofline()


def test_a_failed_trial_has_no_roofline(counted):
    """The roofline of a failed trial is NaN throughout."""
    counted["latency"].loc[{"workload": "wide"}] = np.nan

    rates = counted.ngb.roofline().sel(workload="wide", device="cpu")
    assert rates["flops"].isnull().all()
    assert (rates["bound"] == "").all()
