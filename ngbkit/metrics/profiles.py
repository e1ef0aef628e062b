"""Latency and throughput profiles as CSV, Parquet and JSON, for planners that choose models and hardware for serving.

Planners of edge and cloud deployments (InferLine, for one) start from profiles: the latency of a model on a device at
each batch size. This module writes them from a dataset, one row for each measured workload, its factors, device,
compiler and batch size; predictions are excluded.

The columns of the CSV, and the keys of each profile in the JSON:

``workload``
    The network. Its factors follow, as columns of the CSV and as the object ``factors`` in the JSON.
``device``, ``compiler``, ``batch_size``
    Labels of the dataset; the batch size is in samples per call.
``latency_s``, ``latency_low_s``, ``latency_high_s``
    The median latency of a call with the whole batch, in seconds, and the ends of its 95 % interval; these are empty
    in the CSV and null in the JSON where there are too few rounds for an interval.
``latency_p95_s``, ``latency_p99_s``
    Quantiles of the latency of a call, in seconds, with a single caller and no queue. They are empty where the samples
    do not show them: fewer than 20 or 100 samples, or samples that are means of several calls.
``latency_p95_high_s``, ``latency_p99_high_s``
    The upper ends of their 95 % intervals; empty where that end lies beyond the slowest sample.
``throughput``, ``throughput_low``, ``throughput_high``
    Samples per second: the batch size over the latency.
``samples``, ``calls_per_sample``
    The number of samples behind the quantiles, and of calls in each: short calls are timed in blocks.
``threads``, ``precision``
    From the contract.
``unchecked``
    Why the outputs could not be compared with the reference, so that a wrong answer would not be noticed; empty where
    they were compared and agree.

The JSON is an object with ``schema`` (``"ngbkit-profiles/1"``), ``run_id``, ``ngbkit_version``, ``devices`` (chip,
cores, memory and system by label) and ``profiles``. When a key changes its meaning, the number after the slash changes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import list_trial_dims, to_frame
from ngbkit.dataset.storage import Data, check_target, write_whole
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import UsageError
from ngbkit.metrics import contracts, frames, quantiles
from ngbkit.metrics.scaling import THROUGHPUT
from ngbkit.metrics.serving.configurations import list_configurations
from ngbkit.sweep.json_values import to_json_value

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "ngbkit-profiles/1"
_DEVICE_KEYS = ("chip", "cores_usable", "memory_bytes", "system")


def profiles(data: Data) -> pd.DataFrame:
    """The profiles of a dataset, one per row; the description of this module lists the columns.

    Raises
    ------
    UsageError
        The dataset has no measurement.
    """
    import pandas as pd

    frames = [_profile_node(node) for node in nodes(data).values()]
    frame = pd.concat([part for part in frames if len(part)] or frames, ignore_index=True)
    if frame.empty:
        raise UsageError("no profile to write: this dataset has no measurement. Use the dataset of a finished run.")
    factors = [name for name in frame if name not in ("workload", *_COLUMNS)]
    return frame[["workload", *factors, *_COLUMNS]]


def to_json(data: Data) -> dict[str, Any]:
    """The profiles of a dataset as plain JSON, with a description of its devices."""
    frame = profiles(data)
    names = [name for name in frame if name not in ("workload", *_COLUMNS)]
    rows = []
    for row in frame.to_dict("records"):
        # A factor that only other networks of the table take is missing.
        factors = {name: value for name in names if (value := to_json_value(row.pop(name))) is not None}
        rows.append({"workload": row.pop("workload"), "factors": factors, **to_json_value(row)})
    environments = json.loads(data.attrs.get("environments") or "{}")
    return {
        "schema": SCHEMA,
        "run_id": data.attrs.get("run_id", ""),
        "ngbkit_version": data.attrs.get("ngbkit_version", ""),
        "devices": {label: {key: device.get(key) for key in _DEVICE_KEYS} for label, device in environments.items()},
        "profiles": rows,
    }


def write(data: Data, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write the profiles of a dataset atomically to a ``.csv``, ``.parquet`` or ``.json`` file.

    Raises
    ------
    UsageError
        The suffix is invalid, or the file exists; or as for `profiles`.
    MissingDependencyError
        Parquet needs pyarrow.
    """
    target = check_target(path, overwrite=overwrite)
    if target.suffix in (".csv", ".parquet"):
        return frames.write(profiles(data), target, overwrite=overwrite)
    if target.suffix != ".json":
        raise UsageError(f"invalid file name {target.name!r}; expected .csv, .parquet or .json. Change its suffix.")
    write_whole(target, f"{json.dumps(to_json(data), indent=1)}\n".encode())
    return target


_QUANTILES = {"latency_p95": 0.95, "latency_p99": 0.99}
_COLUMNS = (
    *("device", "compiler", "batch_size", "latency_s", "latency_low_s", "latency_high_s"),
    *(f"{name}{end}_s" for name in _QUANTILES for end in ("", "_high")),
    *("throughput", "throughput_low", "throughput_high", "samples", "calls_per_sample", "threads", "precision"),
    "unchecked",
)


def _profile_node(node: xr.Dataset) -> pd.DataFrame:
    rates = THROUGHPUT(node, ci=LEVEL)
    assert isinstance(rates, xr.Dataset)
    size = node["batch_size"]
    variables = {
        "latency_s": size / rates["throughput"],
        "latency_low_s": size / rates["ci_high"],
        "latency_high_s": size / rates["ci_low"],
        "throughput": rates["throughput"],
        "throughput_low": rates["ci_low"],
        "throughput_high": rates["ci_high"],
        "measured": node["latency"].notnull().sum("repeat"),
        "threads": contracts.extract_field(node, "threads", np.nan),
        "precision": contracts.extract_field(node, "precision", ""),
        "unchecked": node.get("error", xr.full_like(size, "", dtype=object)),
    }
    frame = to_frame(xr.Dataset(variables))
    frame = frame[frame["measured"] > 0].drop(columns="measured").reset_index(drop=True)
    return frame.merge(_list_quantiles(node), how="left") if len(frame) else frame.reindex(columns=[*frame, *_COLUMNS])


def _list_quantiles(node: xr.Dataset) -> pd.DataFrame:
    """The quantiles of each trial by its labels, with upper ends of intervals; NaN where samples do not show them."""
    import pandas as pd

    columns: dict[str, pd.Series] = {}
    for name, quantile in _QUANTILES.items():
        table = list_configurations(node, quantile, unlike="allow")
        columns |= {label: table[label] for label in list_trial_dims(node) if label in table}
        columns |= {"samples": table["samples"], "calls_per_sample": table["calls"]}
        is_shown = (table["samples"] >= quantiles.count_shown_samples(quantile)) & (table["calls"] == 1)
        columns[f"{name}_s"] = table["latency"].where(is_shown)
        columns[f"{name}_high_s"] = table["latency_high"].where(is_shown & np.isfinite(table["latency_high"]))
    return pd.DataFrame(columns)
