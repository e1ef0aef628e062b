"""Datasets that are split and merged again, trees of them, and the use of the result."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from mergeable import DEVICE, load_attribute, network, records, reorder_like, run, sweep

import ngbkit
from ngbkit import merge
from ngbkit.dataset import assembly as datasets

# A deadline would make a test fail on a busy machine.
unhurried = settings(deadline=None, max_examples=30)

GRID = sweep(network("a"), network("b"), devices=["cpu", "orin"])
MEASURED = records(GRID, seed=5, failures=0.2)
WHOLE = datasets.assemble(GRID, MEASURED, run_id="r", environments={"cpu": DEVICE, "orin": DEVICE})


@st.composite
def pieces(draw) -> list[xr.Dataset]:
    """The complete dataset, split repeatedly along labels, in any order."""
    parts = [WHOLE]
    for _ in range(draw(st.integers(0, 5))):
        piece = parts.pop(draw(st.integers(0, len(parts) - 1)))
        dim = draw(st.sampled_from(["device", "workload", "compiler", "batch_size"]))
        marks = draw(st.lists(st.booleans(), min_size=piece.sizes[dim], max_size=piece.sizes[dim]))
        halves = [np.flatnonzero(np.array(marks) == side) for side in (True, False)]
        parts += [piece.isel({dim: half}) for half in halves if len(half)]
    return draw(st.permutations(parts))


@unhurried
@given(pieces())
def test_what_was_cut_apart_is_put_together(cut):
    """Parts split by device, network, compiler and batch size, merged in any order, restore the dataset."""
    merged = merge(*cut)

    xr.testing.assert_identical(WHOLE, reorder_like(merged, WHOLE))
    assert {name: merged.attrs[name] for name in ("run_id", "created", "facts")} == {
        name: WHOLE.attrs[name] for name in ("run_id", "created", "facts")
    }


@unhurried
@given(pieces())
def test_merging_again_changes_nothing(cut):
    """Merging is idempotent, also together with the parts."""
    merged = merge(cut)

    xr.testing.assert_identical(merged, merge(merged))
    xr.testing.assert_identical(merged, merge(merged, *cut, merged))


@pytest.mark.filterwarnings("ignore:.*were not interleaved")
@unhurried
@given(st.lists(st.integers(0, 2), min_size=len(GRID), max_size=len(GRID)), st.permutations([0, 1, 2]))
def test_runs_that_were_stopped_add_up(shares, order):
    """Trials distributed over runs at random, the rest pending, are all present and unchanged."""
    trials = dict(zip([trial.id for trial in GRID.trials()], shares, strict=True))
    groups = [group for group in GRID.groups() if group.anchor is not None]
    of_run = {**trials, **{group.anchor.id: trials[group.trials[0].id] for group in groups}}
    records_of_runs = [[record for record in MEASURED if of_run[record.trial_id] == number] for number in order]

    merged = merge(
        datasets.assemble(GRID, recorded, run_id=f"r{number}")
        for recorded, number in zip(records_of_runs, order, strict=True)
    )

    xr.testing.assert_equal(WHOLE, merged)
    assert "r0, r1, r2" == merged.attrs["run_id"]
    assert GRID.to_json() == load_attribute(merged, "sweep")


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_the_order_of_runs_does_not_matter(order):
    """Other devices, networks, factors and sessions yield the same trials, nodes and attributes in any order."""
    busy = {**DEVICE, "load_1min": 3.0, "selfcheck": {"process_sd": 0.01}}
    runs = [
        run(sweep(network("a"), network("c", depth=(1, 2))), "20260101-000000-aa"),
        run(sweep(network("b"), batch_sizes=[2, 4]), "20260102-000000-bb", environments={"cpu": busy}),
        run(sweep(network("c", depth=(3, 1)), devices=["orin"]), "20260103-000000-cc"),
    ]
    expected = merge(runs)

    merged = merge([runs[number] for number in order])

    assert {"/networks", "/c"} == {*datasets.nodes(merged)}
    for path, node in datasets.nodes(expected).items():
        xr.testing.assert_identical(node, reorder_like(datasets.nodes(merged)[path], node))
    for name in ("environments", "facts"):
        assert load_attribute(expected, name) == load_attribute(merged, name)
    for name in ("sweep", "sweeps"):
        assert len(expected.attrs[name]) == len(merged.attrs[name])
    assert 0.01 == load_attribute(merged, "environments")["cpu"]["selfcheck"]["process_sd"]


def test_datasets_of_unlike_factors_become_nodes():
    """Datasets of unlike factors become nodes with the names of a run's own tree."""
    runs = [
        run(sweep(network("a"))),
        run(sweep(network("blocks/conv", depth=(1, 2)))),
        run(sweep(network("x", width=(8, 16), depth=(1, 2)), network("y", width=(8, 16), depth=(1, 2)))),
        run(sweep(network("b"), devices=["orin"])),
    ]

    merged = merge(runs)

    assert ["networks", "blocks_conv", "width_depth"] == list(merged.children)
    assert ["a", "b"] == merged["networks"]["workload"].values.tolist()
    assert {merged.attrs["sweep"]} == {node.attrs["sweep"] for node in merged.subtree}


def test_datasets_of_other_values_of_a_factor_are_one_dataset():
    """Factors are joined as every dim is: unsorted values keep their order."""
    merged = merge(run(sweep(network("x", depth=(4, 1)))), run(sweep(network("y", depth=(2,)), devices=["orin"])))

    assert [4, 1, 2] == merged["depth"].values.tolist()
    assert ["x", "y"] == merged["workload"].values.tolist()
    assert 12 + 6 == int((merged["status"] == "ok").sum())


def test_nodes_join_by_path_and_by_network():
    """A network is in one node, whatever the old names; nodes that share nothing stay separate."""
    wide, deep = {"width": (8, 16), "depth": (1, 2)}, {"width": (8, 32), "depth": (1, 2)}
    first = run(
        sweep(network("a"), network("x", **wide), network("y", **wide), network("p", **deep), network("q", **deep))
    )
    second = run(sweep(network("a"), network("b"), network("x", **wide), devices=["orin"]), seed=1)

    merged = datasets.nodes(merge(first, second))

    assert {"/networks", "/width_depth", "/width_depth_2"} == {*merged}
    assert ["a", "b"] == merged["/networks"]["workload"].values.tolist()
    assert ["x", "y"] == merged["/width_depth"]["workload"].values.tolist()
    assert ["cpu"] == merged["/width_depth_2"]["device"].values.tolist()
    assert {"": 24, "ok": 24} == dict(
        zip(
            *np.unique(merged["/width_depth"].sel(device="orin")["status"].astype(str), return_counts=True), strict=True
        )
    )


@pytest.mark.filterwarnings("ignore:.*were not interleaved")
@unhurried
@given(st.data())
def test_a_tree_that_was_cut_apart_is_put_together(data):
    """A tree that was split by device, node and network is merged in any order."""
    tree = run(sweep(network("a"), network("b"), network("c", depth=(1, 2)), devices=["cpu", "orin"]))
    parts = []
    for path, node in datasets.nodes(tree).items():
        for device, name in itertools.product(node["device"].values, node["workload"].values):
            piece = node.sel(device=[device], workload=[name])
            as_tree = xr.DataTree.from_dict({"/": xr.Dataset(attrs=tree.attrs), path: piece.drop_attrs(deep=False)})
            parts.append(as_tree if data.draw(st.booleans()) else piece)

    merged = merge(data.draw(st.permutations(parts)))

    assert {*datasets.nodes(tree)} == {*datasets.nodes(merged)}
    assert load_attribute(tree, "environments") == load_attribute(merged, "environments")
    for path, node in datasets.nodes(tree).items():
        xr.testing.assert_identical(node, reorder_like(datasets.nodes(merged)[path], node))


def test_a_tree_comes_back_as_it_was():
    """Merging one alone changes neither its trials nor its attributes."""
    tree = run(sweep(network("a"), network("c", depth=(1, 2))))

    xr.testing.assert_identical(tree, merge(tree))


def test_a_merged_dataset_is_kept_in_a_file(tmp_path):
    """A merged dataset is loaded unchanged from a file and merges again."""
    first, second = run(sweep(network("a"))), run(sweep(network("c", depth=(1, 2)), devices=["orin"]))
    merged = merge(first, second)

    loaded = ngbkit.load(ngbkit.save(merged, tmp_path / "merged.nc"))

    for path, node in datasets.nodes(merged).items():
        xr.testing.assert_identical(node, datasets.nodes(loaded)[path])
    xr.testing.assert_identical(merged, merge(ngbkit.load(ngbkit.save(first, tmp_path / "one.nc")), loaded))


@pytest.mark.parametrize("metric", ["speedup", "rtr", "bsr"])
def test_metrics_are_those_of_the_runs(metric):
    """Each trial has the value of its own dataset, including the effect of anchors, and an interval."""
    first = run(sweep(network("a")), seed=1)
    second = run(sweep(network("b"), devices=["orin"], batch_sizes=[1, 8], repeats=30), seed=2)
    merged = merge(first, second)

    intervals = getattr(merged.ngb, metric)(ci=0.9)

    for dataset in (first, second):
        expected = getattr(dataset.ngb, metric)()
        part = intervals.sel({dim: dataset[dim] for dim in expected.dims})
        xr.testing.assert_allclose(expected.reset_coords(drop=True), part[metric].reset_coords(drop=True), rtol=1e-12)
        assert bool((part["ci_low"] <= part[metric]).all())
        assert bool((part[metric] <= part["ci_high"]).all())
    assert bool(intervals[metric].sel(device="orin", workload="a").isnull().all())
