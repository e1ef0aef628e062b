"""The values of a dataset beside those that the paper published: its tables III to VIII."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from ngbkit.dataset import reference
from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import expand_labels, list_labels
from ngbkit.dataset.selection import select
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import MetricError, UnknownNameError, UsageError
from ngbkit.metrics import ratios
from ngbkit.metrics.factors import DEPTH_SLOPE, RETENTION
from ngbkit.metrics.scaling import THROUGHPUT
from ngbkit.sweep.column import BASELINE
from ngbkit.workloads.paper import FAMILIES

if TYPE_CHECKING:
    import pandas as pd

# The dims of the paper's tables, in the order of the rows.
_DIMS = ("workload", "width", "batch_size", "compiler")


def beside_paper(data: Data, number: str, *, device: str = "xeon", on: str | None = None) -> pd.DataFrame:
    """Compare the values of a dataset with a table of the paper, for everything that both have.

    Means of table VI are over the networks of a family that were measured with all of its compilers at both batch
    sizes; ``networks`` is their number. Its speed-ups are quotients of such means, since the paper has no others: those
    of `speedup`, paired round by round, are sharper.

    Parameters
    ----------
    data
        A dataset or a tree with networks or blocks of the table.
    number
        One of `ngbkit.reference.TABLES`.
    device
        The paper's device, ``"xeon"``, ``"gpu"`` or ``"orin"``; tables IV and V are of none.
    on
        The device of the dataset, needed where it has several.

    Returns
    -------
    pandas.DataFrame
        A row for each trial or network of the table; for each of its numbers two columns, such as
        ``depth_slope paper`` and ``depth_slope here``; and with a depth slope the ends of its 95 % interval.

    Raises
    ------
    UnknownNameError
        There is no such table or device.
    UsageError
        The dataset has several devices, and `on` is not given.
    MetricError
        The dataset has nothing that is in the table, or lacks what a metric of it needs.
    """
    import pandas as pd

    published = _load(number, device)
    devices = list_labels(data, "device")
    if on is None and len(devices) > 1:
        raise UsageError(f"beside_paper() shows one device of {', '.join(devices)}. Name it, as in on={devices[0]!r}.")
    parts = nodes(select(data, device=on or devices[0]) if devices else data).values()
    tables = [_tabulate(part, published, _COMPUTE[number.upper()]) for part in parts]
    if all(table.empty for table in tables):
        names = ", ".join(map(str, published["workload"].values))
        raise MetricError(f"beside_paper({number!r}) has nothing to show: the dataset shares no trial of {names}.")
    return pd.concat([table for table in tables if not table.empty])


def _load(number: str, device: str) -> xr.Dataset:
    """The numbers of a table for one of its devices; that of throughputs with their ratios."""
    published = reference.table(number)
    if "device" in published.dims:
        devices = published["device"].values.tolist()
        if device not in devices:
            raise UnknownNameError("device", device, devices)
        published = published.sel(device=device, drop=True)
    if "throughput" in published:
        published = published.assign(speedup=_divide_by_baseline(published["throughput"]))
        published = published.assign_coords(batch_size=published["batch_sizes"].values.astype(object))
    published = published.reset_coords(drop=True)
    return published[[name for name in published.data_vars if name in _NUMBERS]]


def _tabulate(node: xr.Dataset, published: xr.Dataset, compute: _Compute) -> pd.DataFrame:
    """Tabulate the numbers of a table and of a node, which may have none of them."""
    labels = {name for label in published["workload"].values for name in (label, *FAMILIES.get(label, ()))}
    names = [name for name in list_labels(node, "workload") if name in labels]
    if not names:
        return published.isel(workload=slice(0)).to_dataframe()
    values = compute(expand_labels(node).sel(workload=names), published).squeeze("device", drop=True)
    pairs = [
        part.rename({name: f"{name} {suffix}" for name in part.data_vars if name in published})
        for part, suffix in ((published, "paper"), (values.reset_coords(drop=True), "here"))
    ]
    merged = xr.merge(pairs, join="inner", combine_attrs="drop")
    frame = merged.to_dataframe(dim_order=[dim for dim in _DIMS if dim in merged.dims])
    order = [f"{name} {suffix}" for name in published.data_vars for suffix in ("paper", "here", "low", "high")]
    frame = frame[[*(name for name in order if name in frame), *(name for name in frame if name not in order)]]
    for suffix in ("paper", "here"):
        frame = frame.dropna(subset=[f"{name} {suffix}" for name in published.data_vars], how="all")
    return frame


_Compute = Callable[[xr.Dataset, xr.Dataset], xr.Dataset]


def _compute_family_means(node: xr.Dataset, published: xr.Dataset) -> xr.Dataset:
    compilers = [name for name in list_labels(node, "compiler") if name in published["compiler"]]
    part = node.sel(compiler=compilers)
    rates = THROUGHPUT(part)
    assert isinstance(rates, xr.DataArray)
    ranges = {text: [int(size) for size in text.split("-")] for text in published["batch_size"].values.tolist()}
    means = []
    for text, sizes in ranges.items():
        if not {*sizes} <= {*list_labels(node, "batch_size")}:
            continue
        for family, members in FAMILIES.items():
            names = [name for name in members if name in list_labels(node, "workload")]
            chosen = rates.sel(workload=names, batch_size=sizes)
            complete = chosen.notnull().all(["compiler", "batch_size"])
            numbers = {"throughput": chosen, "cpu_percent": part["cpu_percent"].sel(workload=names, batch_size=sizes)}
            row = {name: values.where(complete).mean(["workload", "batch_size"]) for name, values in numbers.items()}
            row["networks"] = complete.sum("workload")
            means.append(xr.Dataset(row).expand_dims(workload=[family], batch_size=np.array([text], dtype=object)))
    combined = xr.combine_by_coords(means) if means else xr.Dataset()
    return combined.assign(speedup=_divide_by_baseline(combined["throughput"]))


def _compute_depths(node: xr.Dataset, published: xr.Dataset) -> xr.Dataset:
    del published
    with_rounds = {"latency", "round"} <= set(node.variables)
    slopes = DEPTH_SLOPE(node, ci=LEVEL if with_rounds else None, unlike="mask")
    retentions = RETENTION(node, unlike="mask")
    columns = {"ci_low": "depth_slope low", "ci_high": "depth_slope high"}
    values = slopes.to_dataset() if isinstance(slopes, xr.DataArray) else slopes.rename(columns).drop_vars("conclusive")
    return values.assign(retention=retentions)


def _divide_by_baseline(rates: xr.DataArray) -> xr.DataArray:
    return ratios.ratio(rates, ratios.select_reference(rates, "beside_paper", "compiler", BASELINE))


_COMPUTE: Mapping[str, _Compute] = {
    "III": lambda node, _: node[["compile_time"]],
    # The true operations too, since the paper's are torchinfo's.
    "IV": lambda node, _: node.reset_coords()[["parameters", "mult_adds", "macs"]].expand_dims(device=1),
    # Of one block: a stack has as many as it is deep.
    "V": lambda node, _: (
        (node["parameters"] / node["depth"]).min("depth").to_dataset(name="parameters").expand_dims(device=1)
    ),
    "VI": _compute_family_means,
    "VII": _compute_depths,
    "VIII": _compute_depths,
}

_NUMBERS = (
    *("compile_time", "parameters", "mult_adds", "throughput", "cpu_percent", "speedup", "depth_slope", "retention"),
)
