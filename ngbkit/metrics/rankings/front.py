"""The front of size and speed: the configurations that no other exceeds in both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.contention import find_unchecked
from ngbkit.dataset.long_form import expand_labels, list_factors
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError
from ngbkit.metrics import ratios
from ngbkit.metrics.draws import PROBABILITY_LEVEL, SEED, Sampler

if TYPE_CHECKING:
    import pandas as pd

SIZES = ("parameters", "macs", "weight_bytes")
"""The sizes that ngbkit stores of a network."""

_COLUMN = ("device", "compiler", "batch_size")


def front(data: Data, size: str = "parameters") -> pd.DataFrame:
    """The configurations of networks that no other exceeds in both size and speed, by compiler and batch size.

    A configuration is a network with its factors. It is on the front if no other that is at least as large has a higher
    throughput; size stands for what a network can learn. One whose outputs were not checked is never on it, and keeps
    no other from it. Each node of a tree has its own fronts.

    Parameters
    ----------
    data
        A dataset or a tree; select the networks to compare first: ``ds.ngb.sel(workload=["conv"]).ngb.front()``.
    size
        A coordinate of each configuration: ``"parameters"``, ``"macs"``, ``"weight_bytes"``.

    Returns
    -------
    pandas.DataFrame
        ``workload, <factors>, device, batch_size, compiler``; the size; ``throughput``; ``on_front``;
        ``probability``, the share of replicates in which it is on the front: NaN where a configuration has fewer than
        two rounds; and ``checked``, whether its outputs were compared. Configurations without a measurement are left
        out.

    Raises
    ------
    MetricError
        The dataset has no such size.
    """
    import pandas as pd

    generator = np.random.default_rng(SEED)
    rows = [row for node in nodes(data).values() for row in _find_fronts(node, size, generator)]
    names = ["workload", *list_factors(data), "device", "batch_size", "compiler"]
    return pd.DataFrame(rows, columns=[*names, size, "throughput", "on_front", "probability", "checked"])


def _find_fronts(node: xr.Dataset, size: str, generator: np.random.Generator) -> Iterator[dict[str, Any]]:
    if size not in node.coords:
        present_sizes = ", ".join(name for name in SIZES if name in node.coords) or "none"
        raise MetricError(
            f"front() needs the size of each network: got {size!r}, and this dataset has {present_sizes}. "
            "Networks that ngbkit measures have all of them; assign those of others by .assign_coords()."
        )
    expanded = expand_labels(node)
    data = ratios.prepare(expanded)
    rates = data["throughput"]
    is_checked = ~find_unchecked(expanded).broadcast_like(rates)
    dims = [str(dim) for dim in rates.dims if dim not in _COLUMN]
    # A join of datasets along a device repeats the size of each network.
    sizes = (
        node[size]
        .max([dim for dim in node[size].dims if dim in _COLUMN])
        .broadcast_like(rates.isel(dict.fromkeys(_COLUMN, 0), drop=True))
    )
    draws = None
    if "medians" in data:
        replicates = ratios.throughput(data, Sampler(level=PROBABILITY_LEVEL, generator=generator))
        draws = replicates.stack(configuration=dims).transpose(*_COLUMN, "configuration", "draw")
    stacked, checks = (
        values.stack(configuration=dims).transpose(*_COLUMN, "configuration") for values in (rates, is_checked)
    )
    weights = sizes.stack(configuration=dims).values.astype(float)
    labels = {dim: stacked[dim].values.tolist() for dim in _COLUMN}
    configurations = [dict(zip(dims, values, strict=True)) for values in stacked.indexes["configuration"].tolist()]
    for index in np.ndindex(stacked.shape[:-1]):
        column = {dim: labels[dim][place] for dim, place in zip(_COLUMN, index, strict=True)}
        speeds, checked = stacked.values[index], checks.values[index]
        numbers = _find_front(weights, speeds, None if draws is None else draws.values[index], checked)
        for place, (speed, is_ahead, probability) in numbers.items():
            marks = {"throughput": speed, "on_front": is_ahead, "probability": probability}
            marks["checked"] = bool(checked[place])
            yield {**configurations[place], **column, size: weights[place], **marks}


def _find_front(
    sizes: np.ndarray, speeds: np.ndarray, draws: np.ndarray | None, checked: np.ndarray
) -> dict[int, tuple[float, bool, float]]:
    """By configuration with a measurement: its speed, whether it is on the front, and how probably."""
    places = np.flatnonzero(np.isfinite(speeds) & np.isfinite(sizes))
    is_ahead = _mark_front(sizes[places], speeds[places, None], checked[places])[:, 0]
    probabilities = np.full(len(places), np.nan)
    if draws is not None and not np.isnan(draws[places]).any():
        probabilities = _mark_front(sizes[places], draws[places], checked[places]).mean(axis=-1)
    rows = zip(speeds[places].tolist(), is_ahead.tolist(), probabilities.tolist(), strict=True)
    return dict(zip(places.tolist(), rows, strict=True))


def _mark_front(sizes: np.ndarray, speeds: np.ndarray, checked: np.ndarray) -> np.ndarray:
    """Mark the checked configurations that no other exceeds, in the shape ``(configurations, draws)`` of the speeds."""
    speeds = np.where(checked[:, None], speeds, -np.inf)
    marks = np.empty(speeds.shape, dtype=bool)
    for place, size in enumerate(sizes):
        marks[place] = speeds[place] >= speeds[sizes >= size].max(axis=0)
    marks &= checked[:, None]
    return marks
