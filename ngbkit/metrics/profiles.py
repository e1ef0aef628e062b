"""Latency and throughput profiles, for planners that choose models and hardware for serving: plain CSV and JSON.

Who plans an edge or cloud deployment (InferLine, for one) starts from profiles: what a model takes on a device at each
batch size. This writes them from a dataset, a row for each workload, its factors, device, compiler and batch size that
gave a measurement, and nothing that was predicted.

The columns of the CSV, and the keys of each profile in the JSON:

``workload``
    The network. Its factors stand beside it, a column each in the CSV; in the JSON they are an object, ``factors``.
``device``, ``compiler``, ``batch_size``
    Labels of the dataset; samples in one call.
``latency_s``, ``latency_low_s``, ``latency_high_s``
    The median of a call with the whole batch, in seconds, and the ends of its 95 % interval; empty in the CSV and
    null in the JSON where too few rounds were measured to give one.
``latency_p95_s``, ``latency_p99_s``
    Quantiles of the samples themselves, seconds: with one caller and nobody waiting in line.
``throughput``, ``throughput_low``, ``throughput_high``
    Samples a second: the batch size over the latency.
``samples``
    How many calls the quantiles are of.
``threads``, ``precision``
    What the contract says.

The JSON is an object: ``schema`` (``"ngbkit-profiles/1"``), ``run_id``, ``ngbkit_version``, ``devices`` (what each
label is: chip, cores, memory), ``profiles``. A change of what a key means changes the number behind the slash.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import factor_dims, nodes
from ngbkit.dataset.storage import Data, write_whole
from ngbkit.errors import UsageError
from ngbkit.metrics import contracts, labelled
from ngbkit.sweep.to_json import plain

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "ngbkit-profiles/1"
LEVEL = 0.95
_ABOUT = ("chip", "cores_usable", "memory_bytes", "system")


def profiles(data: Data) -> pd.DataFrame:
    """The profiles of a dataset, a row each; the columns are those of the module's own description.

    Raises
    ------
    UsageError
        No trial of it gave a measurement.
    """
    import pandas as pd

    parts = [_profiles(node) for node in nodes(data).values()]
    found = pd.concat([one for one in parts if len(one)] or parts, ignore_index=True)
    if found.empty:
        raise UsageError("no trial of this dataset gave a measurement, so that there is no profile to write.")
    factors = [name for name in found if name not in ("workload", *_COLUMNS)]
    return found[["workload", *factors, *_COLUMNS]]


def to_json(data: Data) -> dict[str, Any]:
    """The profiles of a dataset as plain JSON, with what its devices are."""
    found = profiles(data)
    factors = [name for name in found if name not in ("workload", *_COLUMNS)]
    rows = []
    for row in found.to_dict("records"):
        # Of factors that other networks of the same table take it has none.
        own = {name: value for name in factors if (value := plain(row.pop(name))) is not None}
        rows.append({"workload": row.pop("workload"), "factors": own, **plain(row)})
    environments = json.loads(data.attrs.get("environments") or "{}")
    return {
        "schema": SCHEMA,
        "run_id": data.attrs.get("run_id", ""),
        "ngbkit_version": data.attrs.get("ngbkit_version", ""),
        "devices": {label: {name: about.get(name) for name in _ABOUT} for label, about in environments.items()},
        "profiles": rows,
    }


def write(data: Data, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write the profiles of a dataset to a ``.csv`` or a ``.json`` file, which appears whole or not at all.

    Raises
    ------
    UsageError
        The file is of another sort, or it exists; or as `profiles`.
    """
    target = Path(path)
    if target.suffix not in (".csv", ".json"):
        raise UsageError(f"profiles are written as .csv or .json; {target.name!r} came.")
    if target.exists() and not overwrite:
        raise UsageError(f"{target} exists. Choose another name, or replace it with overwrite=True.")
    is_csv = target.suffix == ".csv"
    text = profiles(data).to_csv(index=False) if is_csv else json.dumps(to_json(data), indent=1) + "\n"
    write_whole(target, text.encode())
    return target


_COLUMNS = (
    *("device", "compiler", "batch_size", "latency_s", "latency_low_s", "latency_high_s"),
    *("latency_p95_s", "latency_p99_s", "throughput", "throughput_low", "throughput_high"),
    *("samples", "threads", "precision"),
)


def _profiles(node: xr.Dataset) -> pd.DataFrame:
    rates = labelled.throughput(node, ci=LEVEL)
    assert isinstance(rates, xr.Dataset)
    size = node["batch_size"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of trials without a sample, which have no row
        quantiles = node["latency"].quantile([0.95, 0.99], "repeat")
    found = {
        "latency_s": size / rates["throughput"],
        "latency_low_s": size / rates["ci_high"],
        "latency_high_s": size / rates["ci_low"],
        "latency_p95_s": quantiles.isel(quantile=0, drop=True),
        "latency_p99_s": quantiles.isel(quantile=1, drop=True),
        "throughput": rates["throughput"],
        "throughput_low": rates["ci_low"],
        "throughput_high": rates["ci_high"],
        "samples": node["latency"].notnull().sum("repeat"),
        "threads": contracts.field(node, "threads", np.nan),
        "precision": contracts.field(node, "precision", ""),
    }
    labels = ["workload", *factor_dims(node), "device", "compiler", "batch_size"]
    scalars = [name for name in labels if name in node.coords and name not in node.dims]
    frame = xr.Dataset(found).expand_dims(scalars).reset_coords(drop=True).to_dataframe().reset_index()
    frame = frame[frame["samples"] > 0].reset_index(drop=True)
    return frame.astype({"samples": int})[[*labels, *found]]
