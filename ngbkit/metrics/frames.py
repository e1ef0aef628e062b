"""Tidy frames of pandas, one row per trial or one per sample, and their files: CSV and Parquet."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.contention import find_unchecked
from ngbkit.dataset.long_form import list_factors, list_trial_dims, to_frame
from ngbkit.dataset.storage import Data, check_target, write_whole
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import MetricError, MissingDependencyError, UsageError
from ngbkit.metrics import contracts, tables
from ngbkit.metrics.metric import load_frame_metrics
from ngbkit.sweep.variables import VARIABLES

if TYPE_CHECKING:
    import pandas as pd

# JSON.
_NO_COLUMNS = frozenset({"contract", "facts"})
_ENDS = ("low", "high")
_CERTAINTY = ("_low", "_high", "_conclusive")
_LAST = ("status", "error")
_SAMPLES = ("latency", "round", "contended")


def to_dataframe(data: Data) -> pd.DataFrame:
    """The trials of a dataset or tree, one per row: labels, metrics with their intervals, and all that was measured.

    ``frame.attrs["units"]`` has the unit of each column with one; ``frame.attrs["notes"]`` lists, one per line, the
    columns that are not compared, and are NaN, since they were timed under another contract.

    ============================================== ========= =====================================================
    column                                         unit
    ============================================== ========= =====================================================
    ``workload``, factors, ``device``,                       the labels of the trial; a factor that a workload does
    ``compiler``                                             not take is NaN
    ``batch_size``                                 1         samples per call
    ``samples``                                    1         number of timed samples
    ``latency``                                    s         median time of one call with the whole batch
    ``throughput``, ``speedup``, and the other               each metric of a trial, such as ``ngbkit.metrics.speedup``,
    metrics of trials                                        with its unit; NaN where the dataset lacks its reference
    … ``_low``, ``_high``                                    the ends of the 95 % interval of each of these; NaN
                                                             with too few rounds
    … ``_conclusive``                                        whether all trials behind it were checked, in enough
                                                             uncontended rounds
    ``threads``, ``precision``                     1         from the contract
    ``compile_time``, ``compile_time_warm``,       s         compilation with empty and with filled caches; the first
    ``first_call_time``                                      call after it
    ``cpu_percent``, ``process_cpu_percent``,      %         of all cores: of the machine, of the measuring process,
    ``foreign_percent``, ``steal_percent``,                  of other processes, of others on the host, and withheld
    ``throttled_percent``                                    by the quota of a container
    ``unusual_percent``                            %         of samples: taken while the host ran the cores in another
                                                             way than usual
    ``core_trip``, ``core_work``                   s         of the probes: a cache line between two cores, arithmetic
    ``bundle``                                     1         number of the set of trials that took turns
    ``peak_memory``, ``gpu_memory``                byte      resident memory of the process; memory of the accelerator
    ``minor_faults``, ``major_faults``             1         pages of a call: given by the kernel; read from a disk
    ``involuntary_switches``                       1         times in a call that the kernel took a core
    ``gpu_percent``, ``energy``                    %, J      use of the accelerator; its energy for one call, or that of
                                                             the CPU's packages
    ``max_abs_error``, ``rmse_ratio``              1         error against the float64 reference
    other variables of the dataset                           as `ngbkit.load` has them, with the units there
    ``status``, ``error``                                    what became of the trial; why it failed, or was not
                                                             checked
    ============================================== ========= =====================================================

    Examples
    --------
    >>> frame = ds.ngb.to_dataframe()  # doctest: +SKIP
    >>> frame.groupby(["workload", "compiler"])["throughput"].max()  # doctest: +SKIP
    """
    import pandas as pd

    frame = pd.concat([_tabulate_node(node) for node in nodes(data).values()], ignore_index=True)
    labels = ["workload", *list_factors(data), "device", "compiler", "batch_size", "samples", "latency"]
    metrics = [f"{name}{end}" for name in load_frame_metrics() if name in frame for end in ("", *_CERTAINTY)]
    others = [name for name in frame if name not in {*labels, *metrics, *_LAST}]
    table = _describe_units(frame[[*labels, *metrics, *others, *_LAST]])
    table.attrs["notes"] = contracts.list_uncompared(data, ("compiler", "batch_size"))
    return table


def to_samples(data: Data) -> pd.DataFrame:
    """The samples of a dataset or tree, one per row, in measured order within each trial.

    The columns are the labels of the trial; ``latency`` (s), of one call with the whole batch; ``round`` (1), the
    interleaving round; and ``contended`` (1), whether something else had the cores for a part of it.
    ``frame.attrs["units"]`` has the unit of each.

    Raises
    ------
    UsageError
        The dataset has no samples.
    """
    import pandas as pd

    sampled = [node for node in nodes(data).values() if "latency" in node]
    if not sampled or not any(node["latency"].notnull().any() for node in sampled):
        raise UsageError("no sample to list: this dataset has no measurement. Use the dataset of a finished run.")
    frame = pd.concat([_list_samples(node) for node in sampled], ignore_index=True)
    labels = ["workload", *list_factors(data), "device", "compiler", "batch_size"]
    return _describe_units(frame[[*labels, *(name for name in _SAMPLES if name in frame)]])


def write(frame: pd.DataFrame, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write a frame atomically to a ``.csv`` or ``.parquet`` file.

    Raises
    ------
    UsageError
        The suffix is invalid, or the file exists.
    MissingDependencyError
        Parquet needs pyarrow.
    """
    target = check_target(path, overwrite=overwrite)
    if target.suffix not in (".csv", ".parquet"):
        raise UsageError(f"invalid file name {target.name!r}; expected .csv or .parquet. Change its suffix.")
    if target.suffix == ".csv":
        content = frame.to_csv(index=False).encode()
    else:
        if find_spec("pyarrow") is None:
            raise MissingDependencyError("pyarrow", "publish")
        buffer = io.BytesIO()
        frame.to_parquet(buffer, engine="pyarrow", index=False)
        content = buffer.getvalue()
    write_whole(target, content)
    return target


BUILDERS: Mapping[str, Callable[[Data], pd.DataFrame]] = {"trials": to_dataframe, "samples": to_samples}
"""Builds the frame of each name."""


def _tabulate_node(node: xr.Dataset) -> pd.DataFrame:
    """The requested trials of a node, one per row: the metrics whose reference it has, and all that was measured."""
    dims = set(node["latency"].dims) - {"repeat"}
    present = [str(name) for name in node.data_vars if name not in _NO_COLUMNS and dims >= set(node[name].dims)]
    variables = {
        "latency": tables.compute_latency(node),  # the first: its dims order the rows
        **_compute_metrics(node),
        "compile_time": node["compile_time"],
        "samples": node["latency"].notnull().sum("repeat"),
    }
    if "contract" in node:
        variables["threads"] = contracts.extract_field(node, "threads", float("nan"))
        variables["precision"] = contracts.extract_field(node, "precision", "")
    variables |= {name: node[name] for name in present if name not in variables}
    frame = to_frame(xr.Dataset(variables)[list(variables)])
    return frame[frame["status"] != ""]  # the grid of several runs has cells that no run requested


def _compute_metrics(node: xr.Dataset) -> dict[str, xr.DataArray]:
    """Compute the metrics of each trial, with the ends of their intervals and whether they are conclusive."""
    variables: dict[str, xr.DataArray] = {}
    with_rounds = {"latency", "round"} <= set(node.variables)
    for name, metric in load_frame_metrics().items():
        if not metric.is_in(node):
            continue
        try:
            result = metric.compute_masked(node, ci=LEVEL if with_rounds else None)
        except MetricError:
            result = xr.full_like(node["throughput"], np.nan)
        certainty = result if isinstance(result, xr.Dataset) else {}
        value = result[name] if isinstance(result, xr.Dataset) else result
        is_itself = tables.compare_with_itself(value, metric) & ~find_unchecked(node)
        missing = xr.full_like(value, np.nan)
        variables |= {name: value, **{f"{name}_{end}": certainty.get(f"ci_{end}", missing) for end in _ENDS}}
        variables[f"{name}_conclusive"] = certainty.get("conclusive", xr.ones_like(value, dtype=bool)) | is_itself
    return variables


def _list_samples(node: xr.Dataset) -> pd.DataFrame:
    names = [name for name in _SAMPLES if name in node]
    labels = list_trial_dims(node)
    scalars = [dim for dim in labels if dim in node.coords and dim not in node.dims]
    samples = node[names].expand_dims(scalars).reset_coords(drop=True)
    order = [dim for dim in labels if dim in samples.dims]
    frame = samples.to_dataframe(dim_order=[*order, "repeat"]).reset_index()
    return frame[frame["latency"].notna()]


def _describe_units(frame: pd.DataFrame) -> pd.DataFrame:
    metrics = {name: metric.units for name, metric in load_frame_metrics().items()}
    units = {name: variable.units for name, variable in VARIABLES.items() if variable.units} | metrics
    units |= {f"{name}_{end}": unit for name, unit in metrics.items() for end in ("low", "high")}
    units |= {"batch_size": "1", "samples": "1", "threads": "1"}
    frame.attrs["units"] = {name: units[name] for name in map(str, frame.columns) if name in units}
    return frame
