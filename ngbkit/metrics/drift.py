"""The drift of a machine's throughputs from group to group, which no interval of one group shows.

The groups of a run are measured minutes apart, and meanwhile a machine, a virtual one above all, changes its pace.
Beside each other batch size the baseline runs at batch size 1 once more, as an anchor: by how much anchors differ is
what was measured of that.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.environments import read_environments
from ngbkit.dataset.long_form import expand_labels, list_labels
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import MAD_SCALE
from ngbkit.metrics import ratios
from ngbkit.metrics.draws import compute_medians
from ngbkit.sweep.column import BASELINE
from ngbkit.sweep.records import MEASURED

APART_SD = 0.02
"""The standard deviation of the logarithm of a throughput from minute to minute, where nothing was measured twice."""

HOSTED_APART_SD = 0.1
"""The same of a virtual machine.

By the anchors of the sweeps in ``notebooks/data``, all of virtual machines with two cores, it is 0.05 to 0.16.
"""

PROBED_APART_SD = 0.05
"""The same where probes tell the states of the host: 0.04 over 17 demos of ``tests/bench/demos.py``."""

# As many measured differences weigh as much as the assumed deviation.
_ASSUMED_WEIGHT = 4


@dataclass(frozen=True, slots=True)
class Drift:
    """The drift of a device: the standard deviation of the logarithm of the throughput of one group."""

    sd: float
    anchors: int  # that tell of it


def estimate_drifts(node: xr.Dataset) -> dict[str, Drift]:
    """Estimate the drift of each device of a node: by its anchors, and by an assumed value that few hardly move.

    Groups of one node take about as long as each other; those of small blocks are nearer in time, and drift less. Runs
    that were merged are further apart than the groups of one, so that anchors do not reduce what is assumed of them.
    """
    node = expand_labels(node)
    sweeps = json.loads(node.attrs.get("sweeps") or "[]")
    runs = Counter(str(device) for sweep in sweeps for device in sweep["devices"])
    has_baseline = BASELINE in list_labels(node, "compiler")
    parts = ratios.prepare(node.sel(compiler=[BASELINE]) if has_baseline else node, anchored=True)
    copies = parts["copies_sd"] if "copies_sd" in parts else xr.DataArray(0.0)
    has_anchors = "anchor" in parts and 1 in parts["batch_size"]
    drifts = {}
    for label, device in zip(map(str, list_labels(node, "device")), ratios.list_devices(node), strict=True):
        differences = np.array([])
        if has_anchors:  # two measurements of the baseline at batch size 1, each of a process of its own
            part = parts.sel(device=label)
            first = compute_medians(part["medians"].sel(compiler=BASELINE, batch_size=1, drop=True))
            gains = ratios.ratio(compute_medians(part["anchor"]), first).where(part["batch_size"] != 1)
            logs = np.log(gains.values.ravel())
            differences = logs[np.isfinite(logs)]
        copies_sd = float(copies.sel(device=label) if "device" in copies.dims else copies)
        assumed_sd = _assume_sd(device)
        count = len(differences)
        measured = MAD_SCALE * float(np.median(abs(differences))) if count else 0.0
        variance = max(0.0, measured**2 - copies_sd**2) / 2  # of one of two
        sd = math.sqrt((count * variance + _ASSUMED_WEIGHT * assumed_sd**2) / (count + _ASSUMED_WEIGHT))
        drifts[label] = Drift(max(sd, assumed_sd if runs[label] > 1 else 0.0), count)
    return drifts


def estimate_apart_sd(data: Data) -> float:
    """Estimate the standard deviation that drift adds to the logarithm of a throughput of one run beside another one.

    Runs are further apart than the groups of one, so anchors that agree do not reduce what is assumed.
    """
    assumed = map(_assume_sd, read_environments(data).values())
    drifts = [drift.sd for node in nodes(data).values() for drift in estimate_drifts(node).values()]
    return max([APART_SD, *assumed, *drifts])


def _assume_sd(device: dict[str, Any]) -> float:
    if not ratios.is_virtual(device):
        return APART_SD
    return PROBED_APART_SD if ratios.is_probed(device) else HOSTED_APART_SD


def describe_drift(data: Data) -> str:
    """Describe in a sentence how far two groups differ by their minutes alone.

    It is empty if all groups took turns, and for synthetic data, which no machine measured. Throughputs and latencies
    never appear without it: their intervals are of the rounds of one group.
    """
    if data.attrs.get("synthetic"):
        return ""
    times: Counter[str] = Counter()
    drifts: dict[str, Drift] = {}
    for node in map(expand_labels, nodes(data).values()):
        times.update(_count_times(node))
        for label, drift in estimate_drifts(node).items():
            drifts[label] = max(drift, drifts.get(label, drift), key=lambda each: each.sd)
    moves = []
    for label, drift in drifts.items():
        if times[label] > 1:
            source = f"{drift.anchors} anchor{'s' if drift.anchors > 1 else ''}" if drift.anchors else "assumed"
            move = f"{100 * math.sqrt(2) * drift.sd:.0f} % (standard deviation, {source})"
            moves.append(f"{label} {move}" if len(times) > 1 else move)
    if not moves:
        return ""
    return f"two groups also differ by their minutes: {', '.join(moves)}"


def _count_times(node: xr.Dataset) -> dict[str, int]:
    """The number of different times at which groups were measured, by device: the groups of a bundle took turns."""
    if "latency" not in node:
        return {}
    measured = node["status"].isin(MEASURED).any("compiler")
    bundles = node["bundle"] if "bundle" in node else xr.DataArray(math.nan)
    if "compiler" in bundles.dims:
        bundles = bundles.max("compiler")
    bundles = bundles.broadcast_like(measured)
    counts = {}
    for label in list_labels(node, "device"):
        of_device = (each.sel(device=label, drop=True) for each in (bundles, measured))
        aligned, present = xr.broadcast(*of_device)
        numbers = aligned.values[present.values]
        alone = int(np.isnan(numbers).sum())
        counts[str(label)] = alone + len(np.unique(numbers[~np.isnan(numbers)]))
    return counts
