"""The work of the compilers, and datasets without their contended samples."""

import json

import numpy as np
import pytest
import xarray as xr

from ngbkit import metrics

LABELS = {"device": ["cpu"], "workload": ["net"], "compiler": ["identity", "a"], "batch_size": [1, 4]}


@pytest.fixture
def contended(measured) -> xr.Dataset:
    """Two groups of three rounds of one sample; round 1 of batch size 4 was contended, in the turn of `a` alone.

    In it both took ten times as long, and the anchor too, whose sample was contended as well.
    """
    usual = np.ones((1, 1, 2, 2, 3)) * np.array([4.0, 2.0])[:, None, None]
    usual[:, :, :, 1, 1] *= 10
    dataset = measured(LABELS, usual, np.broadcast_to(np.arange(3), usual.shape))
    rest = ("device", "workload", "batch_size", "repeat")
    dataset["anchor_latency"] = (rest, np.array([[[[np.nan] * 3, [4.0, 40.0, 4.0]]]]))
    dataset["anchor_round"] = (rest, np.array([[[[-1] * 3, [0, 1, 2]]]], dtype=np.int32))
    dataset["contended"] = xr.zeros_like(dataset["latency"], dtype=np.int8)
    dataset["contended"].loc[{"compiler": "a", "batch_size": 4, "repeat": 1}] = 1
    dataset["anchor_contended"] = xr.zeros_like(dataset["anchor_round"])
    dataset["anchor_contended"].loc[{"batch_size": 4, "repeat": 1}] = 1
    dataset["throughput"] = metrics.throughput(dataset)
    return dataset


def test_a_contended_sample_is_left_out(contended):
    """A contended sample is omitted from its own column and from the anchor, and from no other."""
    quiet = contended.ngb.uncontended()

    assert [[0, 1, 2], [0, -1, 2]] == quiet["round"].sel(batch_size=4).values.reshape(2, 3).tolist()
    assert [0, -1, 2] == quiet["anchor_round"].sel(batch_size=4).values.ravel().tolist()
    for latency, rounds in (("latency", "round"), ("anchor_latency", "anchor_round")):
        np.testing.assert_array_equal(quiet[rounds] == -1, quiet[latency].isnull())
        xr.testing.assert_identical(contended[rounds].sel(batch_size=1), quiet[rounds].sel(batch_size=1))
        assert contended[latency].attrs == quiet[latency].attrs
    assert contended["round"].dtype == quiet["round"].dtype


def test_every_metric_can_be_had_uncontended(measured, contended):
    """The mean is of the quiet samples, and the variable `throughput` is updated."""
    contended["latency"].loc[{"batch_size": 4, "repeat": 2}] = np.array([[[50.0, 50.0]]])

    quiet = contended.ngb.uncontended()

    assert [94 / 3, 26.0] == quiet["latency"].mean("repeat").sel(batch_size=4).values.ravel().tolist()
    np.testing.assert_allclose(metrics.throughput(quiet), quiet["throughput"])
    assert [3, 2] == quiet["latency"].notnull().sum("repeat").sel(batch_size=4).values.ravel().tolist()


def test_a_dataset_that_knows_no_disturbance_stays_itself(contended):
    """A dataset without marks of disturbance is returned unchanged."""
    plain = contended.drop_vars(["contended", "anchor_contended"])

    assert plain is plain.ngb.uncontended()


def test_a_tree_without_its_contended_rounds(contended):
    """Each node loses its own rounds; the attributes of the root are kept."""
    tree = xr.DataTree.from_dict({"/": xr.Dataset(attrs={"run_id": "r"}), "/a": contended})

    quiet = tree.ngb.uncontended()

    assert {"run_id": "r"} == quiet.attrs
    xr.testing.assert_identical(contended.ngb.uncontended(), quiet["a"].to_dataset())


@pytest.fixture
def explained(measured) -> xr.Dataset:
    """`a` fused two of its ten nodes at batch size 1 and failed at 4; identity reports nothing."""
    latency = np.ones((1, 1, 2, 2, 1))
    latency[:, :, 1, 1] = np.nan
    dataset = measured(LABELS, latency)
    dims = dataset["status"].dims
    contract = json.dumps({"runtime": "r", "precision": "bf16", "threads": 2, "notes": "untuned"})
    dataset["contract"] = (dims, np.array([[[[contract] * 2, [contract, ""]]]], dtype=object))
    dataset["facts"] = (dims, np.array([[[["", ""], ['{"nodes_fused": 2, "passes": ["x"]}', ""]]]], dtype=object))
    for name, value in (("nodes_before", 10.0), ("nodes_after", 8.0), ("nodes_fused", 2.0), ("fallbacks", 0.0)):
        dataset[name] = (dims, np.array([[[[np.nan] * 2, [value, np.nan]]]]))
    return dataset


def test_why(explained):
    """The frame has one row per ok trial, with counts, precision, threads and all facts."""
    table = explained.ngb.why()

    assert [
        *("workload", "device", "compiler", "batch_size", "precision", "threads", "notes"),
        *("memory", "minor_faults", "fault_share"),
        *("nodes_before", "nodes_after", "nodes_fused", "fallbacks", "graph_breaks", "f32_layers", "f32_share"),
        *("unchecked", "f32_reasons", "facts"),
    ] == list(table.columns)
    assert [("identity", 1), ("identity", 4), ("a", 1)] == list(
        table[["compiler", "batch_size"]].itertuples(index=False, name=None)
    )
    last = table.iloc[-1]
    assert ("bf16", 2, "untuned", "system") == tuple(last.iloc[4:8])
    assert (10, 8, 2, 0) == tuple(last.iloc[10:14])
    assert np.isnan(last["graph_breaks"])
    assert {"nodes_fused": 2, "passes": ["x"]} == last["facts"]
    assert {} == table.iloc[0]["facts"]


def test_why_of_a_dataset_without_facts_and_of_a_selection(explained):
    """Unknown values are NaN or empty, and a selected label keeps its column."""
    old = explained.drop_vars(["contract", "facts", "nodes_before", "nodes_after", "nodes_fused", "fallbacks"])

    table = old.sel(compiler="a", workload="net").ngb.why()

    assert [("net", "cpu", "a", 1, "")] == list(table.iloc[:, :5].itertuples(index=False, name=None))
    assert table[["threads", "nodes_before"]].isna().all(axis=None)
    assert [{}] == table["facts"].tolist()
