"""The machines of a dataset as a table."""

from __future__ import annotations

import json

import pytest
import xarray as xr
from drawn import measured, network

from ngbkit.dataset.environments import environments, read_environments
from ngbkit.errors import UsageError

MACHINES = {
    "cpu": {"chip": "EPYC", "cores_usable": 2, "memory_bytes": 3 * 2**29, "packages": {"torch": "2.15"}, "host": "x"},
    "gpu": {"chip": "Xeon", "gpu": {"name": "H100"}, "accelerator": "cuda:0", "packages": {"onnx": "1.23"}},
}


def test_a_column_a_device() -> None:
    """The table has one column per device, empty where the device lacks a value."""
    table = environments(measured().assign_attrs(environments=json.dumps(MACHINES)))

    assert ["chip", "cores", "memory (GiB)", "torch", "accelerator", "onnx"] == table.index.tolist()
    assert ["EPYC", 2, 1.5, "2.15", "", ""] == table["cpu"].tolist()
    assert ["Xeon", "", "", "", "H100", "1.23"] == table["gpu"].tolist()


def test_devices_of_a_tree_are_those_of_its_nodes() -> None:
    """A dataset without any has an empty table."""
    tree = measured(network("a"), network("conv", width=(1, 2)))
    first, second = tree.children.values()
    first.attrs["environments"] = json.dumps({"cpu": MACHINES["cpu"]})
    second.attrs["environments"] = json.dumps({"gpu": MACHINES["gpu"]})

    assert MACHINES == read_environments(tree)
    assert environments(measured().drop_attrs()).empty


@pytest.mark.parametrize("text", ["{", "[1]", '{"cpu": 5}', "[" * 100_000])
def test_a_damaged_attribute_is_named(text: str) -> None:
    """The error is a sentence with a remedy."""
    data = xr.Dataset(attrs={"environments": text})

    with pytest.raises(UsageError, match=r"invalid environments: got an attribute .*Load the file again"):
        environments(data)
