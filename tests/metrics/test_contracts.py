"""Columns that were timed under different contracts are compared only on request."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr

from ngbkit import metrics
from ngbkit.errors import MetricError, UsageError
from ngbkit.metrics import contracts

COMPILERS = ["identity", "a", "low"]
BUILT_ON_SPEEDUP = ("speedup", "bsr", "break_even", "depth_slope", "retention", "reversals")


def contract(**fields: object) -> str:
    return json.dumps({"runtime": "r", "precision": "f32", "threads": 2, "transfers": "none", "overlap": 1, **fields})


@pytest.fixture
def unlike() -> xr.Dataset:
    """`a` differs from identity in ignored fields only; `low` is bf16. Speed-ups are 2 and 4."""
    dims = ("workload", "depth", "compiler", "batch_size")
    coords = {"workload": ["net", "other"], "depth": [1, 2], "compiler": COMPILERS, "batch_size": [1, 4]}
    latency = np.broadcast_to(np.array([4.0, 2.0, 1.0])[:, None], (2, 2, 3, 2)).copy()
    texts = [contract(), contract(runtime="s", notes="n"), contract(precision="bf16")]
    dataset = xr.Dataset({"latency": ((*dims, "repeat"), latency[..., None])}, coords)
    dataset["contract"] = (dims, np.broadcast_to(np.array(texts, dtype=object)[:, None], (2, 2, 3, 2)).copy())
    dataset["compile_time"] = (dims, np.zeros((2, 2, 3, 2)))
    dataset["status"] = (dims, np.full((2, 2, 3, 2), "ok", dtype=object))
    return dataset


@pytest.mark.parametrize("name", BUILT_ON_SPEEDUP)
def test_unlike_columns_are_refused(unlike, name):
    """The error names the column, the difference with both values, and every remedy."""
    with pytest.raises(MetricError) as raised:
        getattr(unlike.ngb, name)()

    expected = (
        f"{name}() compares with identity, but these columns were timed under another contract: "
        "low: precision bf16 instead of f32. Exclude them by .sel(compiler=['identity', 'a']), "
        'set them to NaN by unlike="mask", or compare them anyway by unlike="allow", or by ds.ngb.allow_unlike() with '
        "a mark in tables and figures."
    )
    assert expected == str(raised.value)


def test_the_ways_out_work(unlike):
    """A comparison excludes, masks or allows unlike contracts."""
    trial = {"workload": "net", "depth": 1, "batch_size": 1}

    assert [1, 2] == metrics.speedup(unlike.sel(compiler=["identity", "a"])).sel(trial).values.tolist()
    np.testing.assert_array_equal([1, 2, np.nan], metrics.speedup(unlike, unlike="mask").sel(trial))
    assert [1, 2, 4] == metrics.speedup(unlike, unlike="allow").sel(trial).values.tolist()


@pytest.mark.parametrize(
    ("fields", "difference"),
    [
        ({"threads": 4}, "threads 4 instead of 2"),
        ({"transfers": "included"}, "transfers included instead of none"),
        ({"overlap": 8}, "8 requests in flight instead of 1"),
    ],
)
def test_every_field_that_counts_is_compared(unlike, fields, difference):
    """Threads, transfers and overlapped requests make columns unlike as precision does."""
    unlike["contract"].loc[{"compiler": "low"}] = contract(**fields)

    with pytest.raises(MetricError, match=f"low: {difference}"):
        metrics.speedup(unlike)


def test_synchronisation_is_compared_where_both_say(unlike):
    """A field that one of the two lacks is ignored."""
    unlike["contract"].loc[{"compiler": "low"}] = contract(synchronised=False)
    assert metrics.speedup(unlike).notnull().all()

    unlike["contract"].loc[{"compiler": "identity"}] = contract(synchronised=True)
    with pytest.raises(MetricError, match="low: synchronised no instead of yes"):
        metrics.speedup(unlike)


def test_calls_that_were_not_checked_are_unlike(unlike):
    """A contract of before inputs changed from call to call says nothing of them, and its calls may be from memory."""
    for name, inputs in (("identity", "fresh"), ("a", "nudged"), ("low", "")):
        unlike["contract"].loc[{"compiler": name}] = contract(inputs=inputs)

    with pytest.raises(MetricError, match="contract: low: the same inputs in every call, and no check of it"):
        metrics.speedup(unlike)


def test_a_column_that_changed_between_batch_sizes_is_refused_where_it_is_compared_with_itself(unlike):
    """RTR and ASE ignore identity's contract, but reject a column with two contracts at two batch sizes."""
    assert metrics.rtr(unlike).notnull().all()

    unlike["contract"].loc[{"compiler": "a", "batch_size": 4}] = contract(threads=4)
    for name in ("rtr", "ase"):
        with pytest.raises(MetricError, match=r"the same column at batch size 1, .* a: threads 4 instead of 2"):
            getattr(metrics, name)(unlike)
        masked = getattr(metrics, name)(unlike, unlike="mask")
        assert masked.sel(compiler="a", batch_size=4).isnull().all()
        assert masked.sel(compiler="low").notnull().all()


def test_a_wrong_answer_to_unlike_is_refused(unlike):
    """The error lists the three valid values."""
    with pytest.raises(UsageError, match='invalid unlike: got \'ignore\'; expected "error", "mask" or "allow"'):
        metrics.speedup(unlike, unlike="ignore")


def test_what_was_not_measured_differs_from_nothing(unlike):
    """A failed trial has no contract, and a user may drop those of all trials."""
    unlike["contract"].loc[{"compiler": "low"}] = ""

    assert metrics.speedup(unlike).notnull().all()
    assert metrics.speedup(unlike.drop_vars("contract")).notnull().all()


def test_a_node_that_is_refused_stops_the_tree(unlike):
    """Omitting it silently, as for nodes without a baseline, would hide the difference."""
    tree = xr.DataTree.from_dict({"/a": unlike.sel(compiler=["identity", "a"]), "/b": unlike})

    with pytest.raises(MetricError, match="low: precision bf16"):
        tree.ngb.speedup()
    assert ["a", "b"] == list(tree.ngb.speedup(unlike="mask").children)


def test_a_remark_a_column(unlike):
    """Tables and figures have one remark per column, with all its differences."""
    unlike["contract"].loc[{"compiler": "low", "batch_size": 4}] = contract(precision="bf16", threads=4)

    assert ["low: not compared, precision bf16 instead of f32, threads 4 instead of 2"] == contracts.list_uncompared(
        unlike
    )
    assert ["low: not compared over batch sizes, threads 4 instead of 2"] == contracts.list_uncompared(
        unlike, ["batch_size"]
    )


def test_columns_that_may_be_compared_are_marked(unlike):
    """Their labels have a mark, metrics have their numbers, and a note says what differs."""
    unlike["contract"].loc[{"compiler": "low"}] = contract(overlap=2)
    allowed = unlike.ngb.allow_unlike()
    trial = {"workload": "net", "depth": 1, "batch_size": 1}
    note = "low †: compared although unlike, 2 requests in flight instead of 1"

    assert ["identity", "a", "low †"] == allowed["compiler"].values.tolist()
    assert [1, 2, 4] == metrics.speedup(allowed).sel(trial).values.tolist()
    assert [1, 2, 4] == metrics.speedup(allowed, unlike="mask").sel(trial).values.tolist()
    assert [[note], [note]] == [contracts.list_uncompared(allowed, against) for against in (["compiler"], [])]
    assert ["low"] == [line.partition(":")[0] for line in contracts.list_uncompared(unlike)]
    xr.testing.assert_identical(allowed, allowed.ngb.allow_unlike())


def test_a_mark_leaves_other_columns_masked(unlike):
    """A column that became unlike later is still left out, and the baseline may be a marked column."""
    allowed = unlike.ngb.allow_unlike()
    allowed["contract"].loc[{"compiler": "a"}] = contract(threads=4)

    with pytest.raises(MetricError, match="another contract: a: threads 4 instead of 2"):
        metrics.speedup(allowed)
    assert metrics.speedup(allowed, baseline="low †").notnull().all()


def test_marked_columns_are_selected_without_their_mark(unlike):
    """A selection and a table take the label with its mark or without; a tree has one label in all nodes."""
    tree = xr.DataTree.from_dict({"/a": unlike.sel(workload=["net"]), "/b": unlike.sel(workload=["other"])})

    for data in (unlike.ngb.allow_unlike(), tree.ngb.allow_unlike()):
        for label in ("low", "low †"):
            assert "low †" == data.ngb.sel(workload="net", compiler=label)["compiler"].item()
            assert ["low †"] == [*data.ngb.table(compiler=label).frame.columns]
    assert "low" == unlike.ngb.sel(compiler="low")["compiler"].item()
