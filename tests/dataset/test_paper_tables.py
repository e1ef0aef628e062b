"""The tables of the paper, in the schema of measured datasets."""

import numpy as np
import pytest
from drawn import Spec

import ngbkit
from ngbkit import figures
from ngbkit.dataset import reference
from ngbkit.errors import UnknownNameError
from ngbkit.workloads import paper


@pytest.mark.parametrize("number", reference.TABLES)
def test_every_table_is_a_dataset(number):
    """Every table of the paper is a dataset with its source and described variables."""
    dataset = reference.table(number)

    assert f"table {number}" in dataset.attrs["source"]
    assert dataset.sizes
    described = [name for name in dataset.data_vars if name not in ("status", "error")]
    assert [] == [name for name in described if not {"units", "long_name"} <= set(dataset[name].attrs)]


def test_throughputs_are_the_papers():
    """The throughputs of the ResNets are those of the paper's table VI."""
    dataset = reference.table("VI").sel(device="xeon", workload="resnet", compiler="openvino")

    assert [136.94, 163.90] == dataset["throughput"].values.tolist()
    assert ["2-4", "8-16"] == dataset["batch_sizes"].values.tolist()
    assert [3, 12] == dataset["batch_size"].values.tolist()


def test_what_was_not_published_is_no_trial():
    """OpenVINO does not run on the GPU: NaN, and no status."""
    dataset = reference.table("vi").sel(device="gpu", compiler="openvino")

    assert np.isnan(dataset["throughput"]).all()
    assert {""} == set(dataset["status"].values.ravel())


def test_metrics_and_figures_take_them():
    """Own and published values are computed and drawn by the same code."""
    dataset = reference.table("VI")
    speedups = dataset.ngb.speedup().sel(device="xeon", workload="resnet", compiler="openvino")
    spec = Spec(figures.speedup(dataset, device="xeon"))

    assert [136.94 / 68.08, 163.90 / 75.12] == pytest.approx(speedups.values.tolist())
    assert "NGraphBench paper, table VI" in spec.subtitle
    networks = {(row["workload"] if "workload" in row else row["network"]) for row in spec.rows}
    assert set(paper.FAMILIES) == {name.partition(" on ")[0] for name in networks}


def test_architectures_are_those_of_the_zoo():
    """Table IV by timm's names, with the parameters that timm's networks have."""
    dataset = reference.table("IV")

    assert [workload.name for workload in paper.zoo()] == dataset["workload"].values.tolist()
    assert 11689512 == int(dataset["parameters"].sel(workload="resnet18"))


def test_depths_are_by_width():
    """Tables VII and VIII have slopes and retentions."""
    dataset = reference.table("VII").sel(device="gpu", workload="conv", compiler="tensorrt", width=64, batch_size=8)

    assert (0.08924, 3.821) == (float(dataset["depth_slope"]), float(dataset["retention"]))


def test_a_file_keeps_them(tmp_path):
    """A table of the paper is saved and loaded unchanged."""
    dataset = reference.table("III")

    ngbkit.save(dataset, tmp_path / "three.nc")

    assert ngbkit.load(tmp_path / "three.nc").identical(dataset)


def test_another_table_is_refused():
    """The error lists the tables."""
    with pytest.raises(UnknownNameError, match="III"):
        reference.table("IX")
