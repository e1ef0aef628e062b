"""What the compilers did, and datasets without their disturbed rounds."""

import json

import numpy as np
import pytest
import xarray as xr

from ngbkit import metrics

LABELS = {"device": ["cpu"], "workload": ["net"], "compiler": ["identity", "a"], "batch_size": [1, 4]}


@pytest.fixture
def disturbed(measured) -> xr.Dataset:
    """Two groups of three rounds of one sample; round 1 of batch size 4 was disturbed, in the turn of `a` alone.

    In it both took ten times as long, and the anchor too.
    """
    usual = np.ones((1, 1, 2, 2, 3)) * np.array([4.0, 2.0])[:, None, None]
    usual[:, :, :, 1, 1] *= 10
    found = measured(LABELS, usual, np.broadcast_to(np.arange(3), usual.shape))
    rest = ("device", "workload", "batch_size", "repeat")
    found["anchor_latency"] = (rest, np.array([[[[np.nan] * 3, [4.0, 40.0, 4.0]]]]))
    found["anchor_round"] = (rest, np.array([[[[-1] * 3, [0, 1, 2]]]], dtype=np.int32))
    found["disturbed"] = xr.zeros_like(found["latency"], dtype=np.int8)
    found["disturbed"].loc[{"compiler": "a", "batch_size": 4, "repeat": 1}] = 1
    found["throughput"] = metrics.throughput(found)
    return found


def test_a_disturbed_round_is_left_out_for_its_whole_group(disturbed):
    """For the columns that were not marked and for the anchor too, and for no other group."""
    found = metrics.undisturbed(disturbed)

    for latency, rounds in (("latency", "round"), ("anchor_latency", "anchor_round")):
        kept = found[rounds].sel(batch_size=4)
        assert {-1, 0, 2} == set(kept.values.ravel().tolist())
        np.testing.assert_array_equal(kept == -1, found[latency].sel(batch_size=4).isnull())
        xr.testing.assert_identical(disturbed[rounds].sel(batch_size=1), found[rounds].sel(batch_size=1))
        assert disturbed[latency].attrs == found[latency].attrs
    assert disturbed["round"].dtype == found["round"].dtype


def test_every_metric_can_be_had_undisturbed(measured, disturbed):
    """The mean is that of the quiet rounds, and the variable `throughput` follows."""
    disturbed["latency"].loc[{"batch_size": 4, "repeat": 2}] = np.array([[[50.0, 50.0]]])

    found = disturbed.ngb.undisturbed()

    assert [27.0, 26.0] == found["latency"].mean("repeat").sel(batch_size=4).values.ravel().tolist()
    np.testing.assert_allclose(metrics.throughput(found), found["throughput"])
    assert [2, 2] == metrics.summary(found)["samples"].sel(batch_size=4).values.ravel().tolist()


def test_a_dataset_that_knows_no_disturbance_stays_itself(disturbed):
    """Of an older ngbkit, for one."""
    plain = disturbed.drop_vars("disturbed")

    assert plain is plain.ngb.undisturbed()


def test_a_tree_without_its_disturbed_rounds(disturbed):
    """Each node without its own; the attributes of the root stay."""
    tree = xr.DataTree.from_dict({"/": xr.Dataset(attrs={"run_id": "r"}), "/a": disturbed})

    found = tree.ngb.undisturbed()

    assert {"run_id": "r"} == found.attrs
    xr.testing.assert_identical(metrics.undisturbed(disturbed), found["a"].to_dataset())


@pytest.fixture
def told(measured) -> xr.Dataset:
    """`a` fused two of its ten nodes at batch size 1 and failed at 4; identity tells nothing."""
    latency = np.ones((1, 1, 2, 2, 1))
    latency[:, :, 1, 1] = np.nan
    found = measured(LABELS, latency)
    dims = found["status"].dims
    contract = json.dumps({"runtime": "r", "precision": "bf16", "threads": 2})
    found["contract"] = (dims, np.array([[[[contract] * 2, [contract, ""]]]], dtype=object))
    found["facts"] = (dims, np.array([[[["", ""], ['{"nodes_fused": 2, "passes": ["x"]}', ""]]]], dtype=object))
    for name, value in (("nodes_before", 10.0), ("nodes_after", 8.0), ("nodes_fused", 2.0), ("fallbacks", 0.0)):
        found[name] = (dims, np.array([[[[np.nan] * 2, [value, np.nan]]]]))
    return found


def test_why(told):
    """A row a trial that is ok, with counts, precision, threads and all facts."""
    found = told.ngb.why()

    assert [
        *("workload", "device", "compiler", "batch_size", "precision", "threads"),
        *("nodes_before", "nodes_after", "nodes_fused", "fallbacks", "graph_breaks", "facts"),
    ] == list(found.columns)
    assert [("identity", 1), ("identity", 4), ("a", 1)] == list(
        found[["compiler", "batch_size"]].itertuples(index=False, name=None)
    )
    last = found.iloc[-1]
    assert ("bf16", 2, 10, 8, 2, 0) == tuple(last.iloc[4:10])
    assert np.isnan(last["graph_breaks"])
    assert {"nodes_fused": 2, "passes": ["x"]} == last["facts"]
    assert {} == found.iloc[0]["facts"]


def test_why_of_an_older_dataset_and_of_a_selection(told):
    """What it does not know is NaN or empty, and a label that was selected keeps its column."""
    old = told.drop_vars(["contract", "facts", "nodes_before", "nodes_after", "nodes_fused", "fallbacks"])

    found = metrics.why(old.sel(compiler="a", workload="net"))

    assert [("net", "cpu", "a", 1, "")] == list(found.iloc[:, :5].itertuples(index=False, name=None))
    assert found[["threads", "nodes_before"]].isna().all(axis=None)
    assert [{}] == found["facts"].tolist()
