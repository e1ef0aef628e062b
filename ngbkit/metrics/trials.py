"""The trials: their failures, and the work of their compilers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from ngbkit.dataset.environments import read_environments
from ngbkit.dataset.long_form import to_frame
from ngbkit.metrics import arrays, contracts
from ngbkit.sweep.memory import MEMORY
from ngbkit.sweep.records import MEASURED

if TYPE_CHECKING:
    import pandas as pd

_COUNTS = ("nodes_before", "nodes_after", "nodes_fused", "fallbacks", "graph_breaks", "f32_layers", "f32_share")


def failures(dataset: xr.Dataset) -> pd.DataFrame:
    """The trials that are not ``ok``, including pending and unchecked ones: a row each, with its status and error.

    The grid of a merged dataset has cells that no run requested; they are excluded.
    """
    frame = to_frame(dataset[["status", "error"]])
    return frame[~frame["status"].isin(["ok", ""])].reset_index(drop=True)


def compute_fault_share(dataset: xr.Dataset) -> xr.DataArray:
    """About which share of the CPU time of a call is that of page faults, by what one costs on the device; NaN unknown.

    The time of a fault is that of one thread alone: threads that fault together wait for each other, too.
    """
    median: xr.DataArray = xr.apply_ufunc(arrays.median, dataset["latency"], input_core_dims=[["repeat"]])
    labels, machines = dataset["device"], read_environments(dataset)
    devices = [machines.get(str(label), {}) for label in np.ravel(labels)]
    costs = [(each.get("peaks") or {}).get("fault_s") or np.nan for each in devices]
    cores = [each.get("cores_usable") or np.nan for each in devices]
    cost_s, core_count = (labels.copy(data=np.reshape(values, labels.shape).astype(float)) for values in (costs, cores))
    blank = xr.full_like(median, np.nan)
    faults, percent = (dataset.get(name, blank) for name in ("minor_faults", "process_cpu_percent"))
    shares: xr.DataArray = (faults * cost_s / (median * core_count * percent / 100)).clip(max=1)
    return shares.transpose(*median.dims)


def why(dataset: xr.Dataset) -> pd.DataFrame:
    """The work of the compilers, one row per trial that was measured; `explain` compares two of them.

    Columns are ``workload, <factors>, device, compiler, batch_size``; ``precision, threads, notes`` of the contract,
    such as that f16 is only stored and computed in f32; its ``memory``, the ``minor_faults`` of a call, and
    ``fault_share``, about which share of its CPU time they cost (`compute_fault_share`);
    ``nodes_before, nodes_after, nodes_fused, fallbacks, graph_breaks``, NaN where the compiler does not report them;
    ``f32_layers``, the layers of a quantised network that are computed in f32, and ``f32_share``, of all that multiply;
    ``f32_reasons``, why, by kind of layer, empty where the runtime does not show it;
    ``unchecked``, why its outputs were not compared, empty where they were; and ``facts``, a dict of everything that it
    reported.
    """
    blank = xr.full_like(dataset["status"], np.nan, dtype=float)
    empty = xr.full_like(dataset["status"], "", dtype=object)
    timed = xr.Dataset({"contract": dataset.get("contract", empty)})
    variables = {
        "status": dataset["status"],
        "precision": contracts.extract_field(timed, "precision", ""),
        "threads": contracts.extract_field(timed, "threads", np.nan).astype(float),
        "notes": contracts.extract_field(timed, "notes", ""),
        "memory": contracts.extract_field(timed, MEMORY, ""),
        "minor_faults": dataset.get("minor_faults", blank),
        "fault_share": compute_fault_share(dataset) if "latency" in dataset else blank,
        **{name: dataset.get(name, blank) for name in _COUNTS},
        "unchecked": dataset.get("error", empty),
        "facts": dataset.get("facts", empty),
    }
    frame = to_frame(xr.Dataset(variables))
    frame = frame[frame["status"].isin(MEASURED)].drop(columns="status").reset_index(drop=True)
    facts = [json.loads(text) if text else {} for text in frame["facts"]]
    reasons = [each.get("f32_reasons") for each in facts]
    texts = [
        "; ".join(f"{kind}: {text}" for kind, text in each.items()) if isinstance(each, dict) else ""
        for each in reasons
    ]
    frame.insert(len(frame.columns) - 1, "f32_reasons", texts)
    frame["facts"] = facts
    return frame
