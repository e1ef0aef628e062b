"""The rows of figures: their trials, values and names."""

import numpy as np
import pytest
import xarray as xr
from drawn import crashing, measured, network, sweep

from ngbkit import metrics
from ngbkit.errors import MetricError, UnknownNameError
from ngbkit.figures import rows

SPEEDUP = rows.wrap_metric(metrics.speedup, 0.95)
THROUGHPUT = rows.wrap_metric(metrics.throughput, None)


def test_a_row_a_trial_with_its_interval():
    """Values are those of the metric, inside their interval."""
    data = measured(compilers=["identity", "openvino"], batch_sizes=[1, 4])

    frame = rows.build_rows(data, SPEEDUP, {})

    expected = data.ngb.speedup().sel(device="cpu", workload="net").to_series().to_dict()
    assert expected == pytest.approx(frame.set_index(["compiler", "batch_size"])["value"].to_dict())
    openvino = frame[frame["compiler"] == "openvino"]
    assert (openvino["low"] < openvino["value"]).all()
    assert (openvino["value"] < openvino["high"]).all()


def test_without_samples_there_is_no_interval():
    """Published values are means without samples."""
    data = measured().drop_vars(["latency", "round"])

    frame = rows.build_rows(data, SPEEDUP, {})

    assert frame["value"].notna().all()
    assert frame["low"].isna().all()


def test_a_selection_is_made_after_the_values():
    """The baseline of a speed-up need not be selected."""
    frame = rows.build_rows(measured(), SPEEDUP, {"compiler": "openvino", "batch_size": [4]})

    assert [("openvino", 4)] == list(zip(frame["compiler"], frame["batch_size"], strict=True))
    assert frame["value"].notna().all()


@pytest.mark.parametrize(
    ("select", "message"),
    [
        ({"compilers": "openvino"}, "compiler"),
        ({"compiler": "openvina"}, "openvino"),
        ({"batch_size": 2}, "batch size"),
    ],
)
def test_a_label_that_is_not_there_is_named(select, message):
    """The error suggests the nearest name."""
    with pytest.raises(UnknownNameError, match=message):
        rows.build_rows(measured(), SPEEDUP, select)


def test_a_failed_trial_is_a_row():
    """The row of a failed trial has its status and no value."""
    frame = rows.build_rows(crashing(sweep(), "openvino", 4), THROUGHPUT, {})

    (failed,) = frame[frame["status"] == "crashed"].to_dict("records")
    assert np.isnan(failed["value"])
    assert "signal 11" == failed["error"]


def test_networks_are_named_by_what_tells_them_apart():
    """Factors are part of the name, unless they have an axis; the device is if there are several."""
    data = measured(network("block", width=(8, 16), depth=(1, 2)), devices=["cpu"])

    by_both = rows.build_rows(data, THROUGHPUT, {})
    by_depth = rows.build_rows(data, THROUGHPUT, {}, axes=["depth"])

    assert {"block, width 8, depth 1", "block, width 16, depth 2"} < set(by_both["network"])
    assert {"block, width 8", "block, width 16"} == set(by_depth["network"])


def test_a_node_without_a_baseline_is_left_out_unless_all_are():
    """Nodes without the baseline are omitted; if all lack it, the first error is raised."""
    good, bad = (measured(network(name)) for name in ("a", "b"))
    tree = xr.DataTree.from_dict({"/one": good, "/two": bad.sel(compiler=["openvino"])})

    assert {"a"} == set(rows.build_rows(tree, SPEEDUP, {})["workload"])
    with pytest.raises(MetricError, match="relative to the compiler 'identity'"):
        rows.build_rows(bad.sel(compiler=["openvino"]), SPEEDUP, {})


def test_a_selected_label_is_still_a_row():
    """A dataset with one selected device has the same rows."""
    data = measured()

    assert rows.build_rows(data, THROUGHPUT, {}).equals(rows.build_rows(data.sel(device="cpu"), THROUGHPUT, {}))


def test_families_stand_in_columns_by_size():
    """Families of equal length form columns, whose rows are sorted by size."""
    data = measured(*map(network, ("resnet50", "resnet18", "deit3_small_patch16_224", "deit3_base_patch16_224")))
    sizes = xr.DataArray([25.0, 11.0, 22.0, 86.0], {"workload": data["workload"]}, ["workload"])
    frame = rows.build_rows(data.assign_coords(parameters=sizes), THROUGHPUT, {})

    names, columns = rows.order_by_family(frame)

    assert 2 == columns
    assert ["resnet18", "deit3_small_patch16_224", "resnet50", "deit3_base_patch16_224"] == names


def test_networks_of_unequal_families_follow_each_other():
    """Families of unequal length form no columns."""
    data = measured(*map(network, ("resnet50", "resnet18", "vit", "swin", "mobile")))

    names, columns = rows.order_by_family(rows.build_rows(data, THROUGHPUT, {}))

    assert 5 == columns
    assert ["resnet50", "resnet18", "vit", "swin", "mobile"] == names
