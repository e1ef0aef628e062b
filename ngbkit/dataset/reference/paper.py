"""The tables of the NGraphBench paper, on three devices: an Orin Nano, a GPU (RTX 4070) and a Xeon."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import VARIABLES, describe
from ngbkit.errors import UnknownNameError
from ngbkit.workloads.paper import FAMILIES

if TYPE_CHECKING:
    import pandas as pd

#: As table IV calls them, in the order of `ngbkit.workloads.paper.zoo`.
_ARCHITECTURES = [name for family in FAMILIES.values() for name in family]
#: As table III calls them: the largest of each family, and of EfficientNet.
_LARGEST = {
    "resnet-101": "resnet101",
    "efficientnet-b5": "efficientnet_b5",
    "convnext-base": "convnext_base",
    "deit-base": "deit3_base_patch16_224",
    "swin-base": "swin_s3_base_224",
}
_DIMS = ["device", "workload", "compiler", "batch_size"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of the paper.

    Parameters
    ----------
    title
        What is in it.
    file
        Where it is kept, as CSV.
    read
        What makes a dataset of its rows.
    """

    title: str
    file: str
    read: Callable[[pd.DataFrame], xr.Dataset]


def table(number: str) -> xr.Dataset:
    """A table of the paper as a dataset.

    The throughputs of table VI are means over the networks of a family and over two batch sizes: ``workload`` is the
    family, ``batch_size`` the mean of the two and ``batch_sizes`` both. What was not published is NaN, and its status
    is empty.

    Parameters
    ----------
    number
        One of `TABLES`, in Roman numerals as in the paper.

    Returns
    -------
    xarray.Dataset
        With the dims and the units of a dataset that was measured, and the attribute ``source``.

    Raises
    ------
    UnknownNameError
        There is no such table.
    """
    import pandas as pd

    wanted = number.upper()
    if wanted not in TABLES:
        raise UnknownNameError("table", number, TABLES)
    about = TABLES[wanted]
    with resources.as_file(resources.files(__package__) / "data" / about.file) as path:
        found = about.read(pd.read_csv(path))
    source = f"NGraphBench paper, table {wanted}: {about.title}"
    return found.assign_attrs(source=source)


def _compile_times(rows: pd.DataFrame) -> xr.Dataset:
    """Table III; the columns are a device and a compiler each."""
    rows = rows.assign(workload=rows["model"].map(_LARGEST)).drop(columns="model")
    long = rows.melt(["workload", "batch_size"], var_name="column", value_name="compile_time")
    long[["device", "compiler"]] = long.pop("column").str.split("_", expand=True).to_numpy()
    return _gridded(long, _DIMS)


def _architectures(rows: pd.DataFrame) -> xr.Dataset:
    """Table IV; what it calls MACs are torchinfo's mult-adds."""
    found = rows.assign(workload=_ARCHITECTURES).rename(columns={"macs": "mult_adds", "architecture": "title"})
    dataset: xr.Dataset = found.set_index("workload").to_xarray()
    dataset["parameters"].attrs = describe("1", "number of parameters")
    dataset["mult_adds"].attrs = describe("1", "mult-adds of one sample, as torchinfo counts them")
    dataset["title"].attrs = describe("", "what the paper calls it")
    dataset["style"].attrs = describe("", "convolutional, transformer or hybrid")
    return dataset


def _blocks(rows: pd.DataFrame) -> xr.Dataset:
    """Table V."""
    dataset: xr.Dataset = rows.rename(columns={"block": "workload"}).set_index(["workload", "width"]).to_xarray()
    dataset["parameters"].attrs = describe("1", "number of parameters of a block of depth 1")
    return dataset


def _throughputs(rows: pd.DataFrame) -> xr.Dataset:
    """Table VI."""
    both = rows["batch_sizes"].str.split("-", expand=True).astype(int)
    names = {"family": "workload", "throughput_mean": "throughput", "cpu_percent_mean": "cpu_percent"}
    found = rows.rename(columns=names).assign(batch_size=(both.sum(axis=1) // 2))
    dataset = _gridded(found.drop(columns="batch_sizes"), _DIMS)
    sizes = dict(zip(found["batch_size"], rows["batch_sizes"], strict=True))
    both_sizes = np.array([sizes[int(size)] for size in dataset["batch_size"].values], dtype=object)
    dataset = dataset.assign_coords(batch_sizes=("batch_size", both_sizes))
    for name in ("throughput", "cpu_percent"):
        units, long_name, _ = VARIABLES[name]
        dataset[f"{name}_std"].attrs = describe(units, f"standard deviation of: {long_name}")
    return dataset


def _depths(workload: str) -> Callable[[pd.DataFrame], xr.Dataset]:
    """Tables VII and VIII."""

    def read(rows: pd.DataFrame) -> xr.Dataset:
        found = rows.assign(workload=workload).rename(columns={"slope": "depth_slope"})
        dataset = _gridded(found, ["device", "workload", "compiler", "width", "batch_size"])
        dataset["depth_slope"].attrs = describe("1", "least-squares slope of the speed-up over depth")
        dataset["retention"].attrs = describe("1", "speed-up at the largest depth over that at the smallest")
        return dataset

    return read


TABLES: Mapping[str, Table] = {
    "III": Table(title="compile times", file="table_iii_compile_seconds.csv", read=_compile_times),
    "IV": Table(title="architectures", file="table_iv_architectures.csv", read=_architectures),
    "V": Table(title="blocks", file="table_v_blocks.csv", read=_blocks),
    "VI": Table(title="throughput and CPU use", file="table_vi_throughput_cpu.csv", read=_throughputs),
    "VII": Table(title="depth, convolution block", file="table_vii_depth_conv.csv", read=_depths("conv")),
    "VIII": Table(title="depth, attention block", file="table_viii_depth_mha.csv", read=_depths("mha")),
}
"""The tables of the paper that are kept, by their number."""


def _gridded(rows: pd.DataFrame, dims: list[str]) -> xr.Dataset:
    """Rows as a grid, in the order in which their labels come; numbers are sorted."""
    dataset: xr.Dataset = rows.set_index(dims).to_xarray()
    for dim in ("device", "workload", "compiler"):
        order = list(dict.fromkeys(rows[dim]))
        dataset = dataset.sel({dim: order}).assign_coords({dim: np.array(order, dtype=object)})
    there = xr.concat([dataset[name].notnull() for name in dataset.data_vars], "variable").any("variable")
    dataset["status"] = there.copy(data=np.where(there, "ok", "").astype(object))
    dataset["error"] = xr.full_like(dataset["status"], "")
    for name in dataset.data_vars:
        if name in VARIABLES:
            dataset[name].attrs = describe(*VARIABLES[str(name)])
    return dataset
