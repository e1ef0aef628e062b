"""The tables of the NGraphBench paper, on three devices: an Orin Nano, a GPU (RTX 4070) and a Xeon."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import describe
from ngbkit.errors import UnknownNameError
from ngbkit.sweep.variables import VARIABLES
from ngbkit.workloads.paper import FAMILIES

if TYPE_CHECKING:
    import pandas as pd

# In the order of table IV and of `ngbkit.workloads.paper.zoo`.
_ARCHITECTURES = [name for family in FAMILIES.values() for name in family]
# By their names in table III: the largest of each family.
_LARGEST = {
    "resnet-101": "resnet101",
    "efficientnet-b5": "efficientnet_b5",
    "convnext-base": "convnext_base",
    "deit-base": "deit3_base_patch16_224",
    "swin-base": "swin_s3_base_224",
}
_DIMS = ["device", "workload", "compiler", "batch_size"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperTable:
    """A table of the paper."""

    title: str
    file: str  # a CSV in the folder data
    read: Callable[[pd.DataFrame], xr.Dataset]  # converts its rows


def table(number: str) -> xr.Dataset:
    """A table of the paper as a dataset.

    The throughputs of table VI are means over the networks of a family and over two batch sizes: ``workload`` is the
    family, ``batch_size`` the mean of the two and ``batch_sizes`` both. Unpublished values are NaN, with an empty
    status.

    Parameters
    ----------
    number
        One of `TABLES`, in Roman numerals as in the paper.

    Returns
    -------
    xarray.Dataset
        With the dims and the units of a measured dataset, and the attribute ``source``.

    Raises
    ------
    UnknownNameError
        There is no such table.
    """
    import pandas as pd

    numeral = number.upper()
    if numeral not in TABLES:
        raise UnknownNameError("table", number, TABLES)
    published = TABLES[numeral]
    with resources.as_file(resources.files(__package__) / "data" / published.file) as path:
        dataset = published.read(pd.read_csv(path))
    return dataset.assign_attrs(source=f"NGraphBench paper, table {numeral}: {published.title}")


def _read_compile_times(rows: pd.DataFrame) -> xr.Dataset:
    """Table III, with one column per device and compiler."""
    rows = rows.assign(workload=rows["model"].map(_LARGEST)).drop(columns="model")
    long = rows.melt(["workload", "batch_size"], var_name="column", value_name="compile_time")
    long[["device", "compiler"]] = long.pop("column").str.split("_", expand=True).to_numpy()
    return _to_grid(long, _DIMS)


def _read_architectures(rows: pd.DataFrame) -> xr.Dataset:
    """Table IV, whose MACs are torchinfo's mult-adds."""
    rows = rows.assign(workload=_ARCHITECTURES).rename(columns={"macs": "mult_adds", "architecture": "title"})
    dataset: xr.Dataset = rows.set_index("workload").to_xarray()
    dataset["parameters"].attrs = describe("1", "number of parameters")
    dataset["mult_adds"].attrs = describe("1", "mult-adds of one sample, as torchinfo counts them")
    dataset["title"].attrs = describe("", "name in the paper")
    dataset["style"].attrs = describe("", "convolutional, transformer or hybrid")
    return dataset


def _read_blocks(rows: pd.DataFrame) -> xr.Dataset:
    """Table V."""
    dataset: xr.Dataset = rows.rename(columns={"block": "workload"}).set_index(["workload", "width"]).to_xarray()
    dataset["parameters"].attrs = describe("1", "number of parameters of a block of depth 1")
    return dataset


def _read_throughputs(rows: pd.DataFrame) -> xr.Dataset:
    """Table VI."""
    sizes = rows["batch_sizes"].str.split("-", expand=True).astype(int).sum(axis=1) // 2
    names = {"family": "workload", "throughput_mean": "throughput", "cpu_percent_mean": "cpu_percent"}
    dataset = _to_grid(rows.rename(columns=names).assign(batch_size=sizes).drop(columns="batch_sizes"), _DIMS)
    ranges = dict(zip(sizes, rows["batch_sizes"], strict=True))
    both_sizes = np.array([ranges[int(size)] for size in dataset["batch_size"].values], dtype=object)
    dataset = dataset.assign_coords(batch_sizes=("batch_size", both_sizes))
    for name in ("throughput", "cpu_percent"):
        units, long_name = VARIABLES[name].units, VARIABLES[name].long_name
        dataset[f"{name}_std"].attrs = describe(units, f"standard deviation of: {long_name}")
    return dataset


def _read_depths(rows: pd.DataFrame, workload: str) -> xr.Dataset:
    """Tables VII and VIII."""
    rows = rows.assign(workload=workload).rename(columns={"slope": "depth_slope"})
    dataset = _to_grid(rows, ["device", "workload", "compiler", "width", "batch_size"])
    dataset["depth_slope"].attrs = describe("1", "least-squares slope of the speed-up over depth")
    dataset["retention"].attrs = describe("1", "speed-up at the largest depth over that at the smallest")
    return dataset


_read_conv, _read_mha = (partial(_read_depths, workload=name) for name in ("conv", "mha"))


TABLES: Mapping[str, PaperTable] = {
    "III": PaperTable(title="compile times", file="table_iii_compile_seconds.csv", read=_read_compile_times),
    "IV": PaperTable(title="architectures", file="table_iv_architectures.csv", read=_read_architectures),
    "V": PaperTable(title="blocks", file="table_v_blocks.csv", read=_read_blocks),
    "VI": PaperTable(title="throughput and CPU use", file="table_vi_throughput_cpu.csv", read=_read_throughputs),
    "VII": PaperTable(title="depth, convolution block", file="table_vii_depth_conv.csv", read=_read_conv),
    "VIII": PaperTable(title="depth, attention block", file="table_viii_depth_mha.csv", read=_read_mha),
}
"""The available tables of the paper, by their number."""


def _to_grid(rows: pd.DataFrame, dims: list[str]) -> xr.Dataset:
    """Rows as a grid; texts keep their order, numbers are sorted."""
    dataset: xr.Dataset = rows.set_index(dims).to_xarray()
    for dim in ("device", "workload", "compiler"):
        order = list(dict.fromkeys(rows[dim]))
        dataset = dataset.sel({dim: order}).assign_coords({dim: np.array(order, dtype=object)})
    published = xr.concat([dataset[name].notnull() for name in dataset.data_vars], "variable").any("variable")
    dataset["status"] = published.copy(data=np.where(published, "ok", "").astype(object))
    dataset["error"] = xr.full_like(dataset["status"], "")
    for name in dataset.data_vars:
        if name in VARIABLES:
            dataset[name].attrs = VARIABLES[str(name)].attrs
    return dataset
