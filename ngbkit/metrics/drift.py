"""How far a machine moves throughputs from group to group: what no interval of one group shows.

The groups of a run are measured minutes apart, and meanwhile a machine, a virtual one above all, changes its pace.
Beside each other batch size the baseline runs at batch size 1 once more, as an anchor: by how much anchors differ is
what was measured of that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import expand_labels, list_labels
from ngbkit.dataset.storage import Data
from ngbkit.metrics import ratios
from ngbkit.metrics.draws import compute_medians
from ngbkit.sweep.trials import BASELINE

APART_SD = 0.02
"""The standard deviation of the logarithm of a throughput from minute to minute, where nothing was measured twice."""

HOSTED_APART_SD = 0.1
"""The same of a virtual machine.

By the anchors of the sweeps in ``notebooks/data``, all of virtual machines with two cores, it is 0.05 to 0.16.
"""

# As many measured differences weigh as much as the assumed deviation.
_ASSUMED_WEIGHT = 4


@dataclass(frozen=True, slots=True)
class Drift:
    """How far a device moves the throughput of one group, as a standard deviation of its logarithm."""

    sd: float
    anchors: int  # that tell of it


def estimate_drifts(data: Data) -> dict[str, Drift]:
    """Estimate the drift of each device: by anchors, and by an assumed value that few anchors hardly move."""
    differences: dict[str, list[float]] = {}
    copies_sd: dict[str, float] = {}
    assumed_sd: dict[str, float] = {}
    for node in map(expand_labels, nodes(data).values()):
        parts = _prepare_baseline(node)
        copies = parts["copies_sd"] if "copies_sd" in parts else xr.DataArray(0.0)
        labels = list(map(str, list_labels(node, "device")))
        for label, device in zip(labels, ratios.list_devices(node), strict=True):
            is_virtual = bool((device.get("conditions") or {}).get("virtual_machine"))
            assumed_sd[label] = HOSTED_APART_SD if is_virtual else APART_SD
            copies_sd[label] = float(copies.sel(device=label) if "device" in copies.dims else copies)
            differences.setdefault(label, [])
        if "anchor" not in parts or 1 not in parts["batch_size"]:
            continue
        first = compute_medians(parts["medians"].sel(compiler=BASELINE, batch_size=1, drop=True), None)
        gains = ratios.ratio(compute_medians(parts["anchor"], None), first).where(parts["batch_size"] != 1)
        for label in labels:
            values = np.log(gains.sel(device=label).values.ravel())
            differences[label] += values[np.isfinite(values)].tolist()
    return {
        label: Drift(_estimate_sd(np.array(values), copies_sd[label], assumed_sd[label]), len(values))
        for label, values in differences.items()
    }


def describe_drift(data: Data) -> str:
    """Describe in a sentence how far two groups differ by their minutes alone.

    It is empty if all groups took turns, and for synthetic data, which no machine measured. Throughputs and latencies
    never appear without it: their intervals are of the rounds of one group.
    """
    times = {} if data.attrs.get("synthetic") else _count_times(data)
    drifts = {label: drift for label, drift in estimate_drifts(data).items() if times.get(label, 0) > 1}
    if not drifts:
        return ""
    moves = [f"{_describe_move(drift)}{f' on {label}' if len(times) > 1 else ''}" for label, drift in drifts.items()]
    return f"no interval allows for the minutes between groups (networks, batch sizes): they move by {', '.join(moves)}"


def _describe_move(drift: Drift) -> str:
    source = f"of {drift.anchors} anchor{'s' if drift.anchors > 1 else ''}" if drift.anchors else "assumed"
    return f"{100 * math.sqrt(2) * drift.sd:.0f} % (standard deviation, {source})"


def _count_times(data: Data) -> dict[str, int]:
    """The number of different times at which groups were measured, by device: those of a bundle took turns."""
    counts: dict[str, int] = {}
    for node in map(expand_labels, nodes(data).values()):
        if "latency" not in node:
            continue
        measured = (node["status"] == "ok").any("compiler")
        bundles = node["bundle"] if "bundle" in node else xr.DataArray(math.nan)
        if "compiler" in bundles.dims:
            bundles = bundles.max("compiler")
        bundles = bundles.broadcast_like(measured)
        for label in list_labels(node, "device"):
            of_device = (each.sel(device=label, drop=True) for each in (bundles, measured))
            aligned, present = xr.broadcast(*of_device)
            numbers = aligned.values[present.values]
            alone = int(np.isnan(numbers).sum())
            counts[str(label)] = counts.get(str(label), 0) + alone + len(np.unique(numbers[~np.isnan(numbers)]))
    return counts


def _prepare_baseline(node: xr.Dataset) -> xr.Dataset:
    """The baseline of a node with its anchors, prepared for ratios; without it, what is prepared of any column."""
    if BASELINE in node["compiler"]:
        node = node.sel(compiler=[BASELINE])
    return ratios.prepare(node, anchored=True)


def _estimate_sd(differences: np.ndarray, copies_sd: float, assumed_sd: float) -> float:
    """Estimate the deviation of one throughput from differences of two, each of a process of its own."""
    count = len(differences)
    measured = 1.4826 * float(np.median(abs(differences))) if count else 0.0
    variance = max(0.0, measured**2 - copies_sd**2) / 2
    return math.sqrt((count * variance + _ASSUMED_WEIGHT * assumed_sd**2) / (count + _ASSUMED_WEIGHT))
