"""Selections by label, of datasets, trees and frames."""

from __future__ import annotations

import pytest
import xarray as xr
from drawn import measured, network

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.selection import select
from ngbkit.errors import UnknownNameError, UsageError


@pytest.fixture
def tree() -> xr.DataTree:
    """Two networks without factors, and one with."""
    return measured(network("a"), network("b"), network("conv", width=(16, 32)))


def test_a_dataset_is_selected_as_by_xarray() -> None:
    """A list keeps the dim and its order; a label drops it."""
    data = measured(network("a"), network("b"))
    part = select(data, workload=["b", "a"], compiler="openvino")

    xr.testing.assert_identical(data.sel(workload=["b", "a"], compiler="openvino"), part)


def test_a_node_that_remains_is_a_dataset(tree: xr.DataTree) -> None:
    """A selection of one node is a dataset with the attributes of the tree."""
    part = select(tree, workload=["b"])

    assert isinstance(part, xr.Dataset)
    assert ["b"] == part["workload"].values.tolist()
    assert tree.attrs.keys() <= part.attrs.keys()


def test_nodes_without_any_of_the_labels_are_left_out(tree: xr.DataTree) -> None:
    """Each other node has those of the labels that it knows."""
    part = select(tree, workload=["conv", "a"], batch_size=4)

    assert isinstance(part, xr.DataTree)
    assert [["a"], ["conv"]] == [node["workload"].values.tolist() for node in nodes(part).values()]
    assert {4} == {int(node["batch_size"]) for node in nodes(part).values()}
    assert ["conv"] == select(tree, width=16)["workload"].values.tolist()


def test_a_selected_dim_can_be_selected_again(tree: xr.DataTree) -> None:
    """A selected dim can be selected again by its one label."""
    part = select(tree, device="cpu", workload="a")

    xr.testing.assert_identical(part, select(part, device="cpu"))


def test_errors_name_the_labels(tree: xr.DataTree) -> None:
    """The error of a selection names an unknown dim, an unknown label, or labels of different nodes."""
    with pytest.raises(UnknownNameError, match="Did you mean workload"):
        select(tree, workloads=["a"])
    with pytest.raises(UnknownNameError, match="unknown workload 'c'"):
        select(tree, workload=["a", "c"])
    with pytest.raises(UsageError, match=r"no network has all of workload='a', width=16"):
        select(tree, workload="a", width=16)
