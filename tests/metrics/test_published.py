"""The values of a dataset beside the paper's."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from drawn import measured, network

from ngbkit import metrics
from ngbkit.dataset import reference
from ngbkit.errors import MetricError, UnknownNameError, UsageError

RESNETS = ("resnet18", "resnet50")


@pytest.fixture
def networks() -> xr.Dataset:
    """Two ResNets, and a network that the paper does not have."""
    data = measured(*map(network, (*RESNETS, "vgg")), batch_sizes=(1, 2, 4))
    sizes = {name: ("workload", np.array([1.0, 2.0, 3.0])) for name in ("parameters", "mult_adds", "macs")}
    return data.assign(cpu_percent=xr.full_like(data["throughput"], 90.0)).assign_coords(sizes)


@pytest.fixture
def blocks() -> xr.Dataset:
    """The paper's convolution block at two widths, of which the paper has one."""
    data = measured(network("conv", width=(32, 64), depth=(1, 2, 6)), batch_sizes=(1, 8))
    return data.assign_coords(parameters=data["width"] * data["depth"] * 10.0)


def test_sizes_stand_beside_each_other(networks: xr.Dataset, blocks: xr.Dataset) -> None:
    """True MACs have no column of the paper; of a stack the parameters of one block count."""
    table = networks.ngb.beside_paper("IV")
    block = blocks.ngb.beside_paper("V")

    assert [*RESNETS] == table.index.tolist()
    assert ["parameters", "mult_adds"] == [name.removesuffix(" here") for name in table if name.endswith(" here")]
    assert [1.0, 2.0] == table["macs"].tolist()
    assert (11689512, 1.0) == (table["parameters paper"]["resnet18"], table["parameters here"]["resnet18"])
    assert [("conv", 64)] == block.index.tolist()
    assert [37056.0, 640.0] == block.iloc[0].tolist()


def test_means_are_of_complete_networks(networks: xr.Dataset) -> None:
    """A network that one compiler failed on is in no mean of its family; a pair of batch sizes needs both."""
    columns = (networks["compiler"] == "openvino") & (networks["batch_size"] == 4)
    failed = columns & (networks["workload"] == "resnet50")
    table = networks.assign(latency=networks["latency"].where(~failed)).ngb.beside_paper("vi")
    rates = metrics.throughput(networks).sel(device="cpu", workload="resnet18", batch_size=[2, 4]).mean("batch_size")

    assert [("resnet", "2-4", "identity"), ("resnet", "2-4", "openvino")] == table.index.tolist()
    assert [1, 1] == table["networks"].tolist()
    np.testing.assert_allclose(rates.sel(compiler=["identity", "openvino"]), table["throughput here"])
    assert [68.08, 136.94] == table["throughput paper"].tolist()
    assert [1.0, pytest.approx(136.94 / 68.08)] == table["speedup paper"].tolist()
    assert table["speedup here"].iloc[1] == pytest.approx(float(rates.sel(compiler="openvino") / rates[0]))


def test_depths_have_intervals(blocks: xr.Dataset) -> None:
    """The intervals of depths are those of the dataset, as the paper printed none."""
    table = blocks.ngb.beside_paper("VII")
    slope = metrics.depth_slope(blocks, ci=0.95).sel(device="cpu", workload="conv", width=64, batch_size=8)
    row = table.loc[("conv", 64, 8, "openvino")]

    assert [("conv", 64, 8, "openvino")] == table.index.tolist()
    ours = slope.sel(compiler="openvino")[["depth_slope", "ci_low", "ci_high"]].to_array().values
    np.testing.assert_allclose(ours, row[["depth_slope here", "depth_slope low", "depth_slope high"]])
    assert (0.4417, 0.3379) == (row["depth_slope paper"], row["retention paper"])


def test_a_tree_contributes_the_nodes_that_the_table_has(networks: xr.Dataset, blocks: xr.Dataset) -> None:
    """A tree contributes networks to one table and blocks to another."""
    tree = xr.DataTree.from_dict({"/networks": networks, "/blocks": blocks})

    assert networks.ngb.beside_paper("IV").equals(tree.ngb.beside_paper("IV"))
    assert blocks.ngb.beside_paper("VII").equals(tree.ngb.beside_paper("VII"))


def test_another_device_of_the_paper(networks: xr.Dataset) -> None:
    """The table of another device has the compilers that both devices have."""
    table = networks.ngb.beside_paper("VI", device="orin")

    assert {"identity"} == set(table.index.get_level_values("compiler"))
    assert [104.69] == table["throughput paper"].tolist()


def test_the_device_of_the_dataset_is_named_where_there_are_two() -> None:
    """A dataset of two devices needs the name of one for the paper's table."""
    two = measured(network("resnet101"), devices=["cpu", "orin"], batch_sizes=(1,))
    with pytest.raises(UsageError, match="on='cpu'"):
        two.ngb.beside_paper("III")

    table = two.ngb.beside_paper("III", on="orin")
    ours = two["compile_time"].sel(device="orin", workload="resnet101", compiler="openvino", batch_size=1)
    assert [(2.249, float(ours))] == list(table.itertuples(index=False, name=None))


def test_errors_of_the_comparison(networks: xr.Dataset) -> None:
    """An unknown table, an unknown device, and a dataset with nothing in common are errors."""
    with pytest.raises(UnknownNameError, match="unknown table 'IX'"):
        networks.ngb.beside_paper("IX")
    with pytest.raises(UnknownNameError, match="Did you mean xeon"):
        networks.ngb.beside_paper("VI", device="xeno")
    with pytest.raises(MetricError, match="shares no trial of resnet101, efficientnet_b5"):
        networks.ngb.beside_paper("III")


@pytest.mark.parametrize("number", reference.TABLES)
def test_every_table_is_compared(number: str, networks: xr.Dataset) -> None:
    """One that is added without a comparison fails here."""
    with pytest.raises(MetricError, match="shares no trial"):
        networks.sel(workload=["vgg"]).ngb.beside_paper(number)
