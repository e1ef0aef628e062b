"""The front of size and speed: the configurations that no other exceeds in both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import list_factors
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError
from ngbkit.metrics.draws import DRAWS
from ngbkit.metrics.rankings.candidates import RankingCandidate, list_candidates
from ngbkit.metrics.rankings.leads import draw_speeds

if TYPE_CHECKING:
    import pandas as pd

SIZES = ("parameters", "macs", "weight_bytes")
"""The sizes that ngbkit stores of a network."""

_COLUMN = ("device", "compiler", "batch_size")


def front(data: Data, size: str = "parameters") -> pd.DataFrame:
    """The configurations of networks that no other exceeds in both size and speed, by compiler and batch size.

    A configuration is a network with its factors. It is on the front if no other that is at least as large has a higher
    throughput; size stands for what a network can learn. One whose outputs were not checked is never on it, and keeps
    no other from it. Each node of a tree has its own fronts. Networks are compared as in `compare_networks`.

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

    rows = [row for node in nodes(data).values() for row in _find_fronts(node, size)]
    names = ["workload", *list_factors(data), "device", "batch_size", "compiler"]
    return pd.DataFrame(rows, columns=[*names, size, "throughput", "on_front", "probability", "checked"])


def _find_fronts(node: xr.Dataset, size: str) -> Iterator[dict[str, Any]]:
    if size not in node.coords:
        present_sizes = ", ".join(name for name in SIZES if name in node.coords) or "none"
        raise MetricError(
            f"front() needs the size of each network: got {size!r}, and this dataset has {present_sizes}. "
            "Networks that ngbkit measures have all of them; assign those of others by .assign_coords()."
        )
    # A join of datasets along a device repeats the size of each network.
    sizes = node[size].max([dim for dim in node[size].dims if dim in _COLUMN])
    for (device, batch_size), candidates in list_candidates(node, "front", "allow", untuned=True).items():
        for compiler in dict.fromkeys(candidate.compiler for candidate in candidates):
            sized = []
            for member in (candidate for candidate in candidates if candidate.compiler == compiler):
                place = {"workload": member.workload, **member.factors}
                weight = float(sizes.sel({dim: value for dim, value in place.items() if dim in sizes.dims}).item())
                sized += [(member, weight)] if math.isfinite(weight) else []
            members, weights = [member for member, _ in sized], np.array([weight for _, weight in sized])
            column = {"device": device, "batch_size": batch_size, "compiler": compiler}
            for (member, weight), (is_ahead, probability) in zip(sized, _find_front(weights, members), strict=True):
                marks = {"on_front": is_ahead, "probability": probability, "checked": member.checked}
                place = {"workload": member.workload, **member.factors}
                yield {**place, **column, size: weight, "throughput": member.throughput, **marks}


def _find_front(sizes: np.ndarray, members: Sequence[RankingCandidate]) -> list[tuple[bool, float]]:
    """By configuration: whether it is on the front, and how probably."""
    if not members:
        return []
    checked = np.array([member.checked for member in members])
    speeds = np.array([[member.throughput] for member in members])
    is_ahead = _mark_front(sizes, speeds, checked)[:, 0]
    draws = np.full((len(members), DRAWS), np.nan)
    if all(len(member.rounds) > 1 for member in members):
        draws = draw_speeds(members)
    probabilities = np.full(len(members), np.nan)
    if not np.isnan(draws).any():
        probabilities = _mark_front(sizes, draws, checked).mean(axis=-1)
    return list(zip(is_ahead.tolist(), probabilities.tolist(), strict=True))


def _mark_front(sizes: np.ndarray, speeds: np.ndarray, checked: np.ndarray) -> np.ndarray:
    """Mark the checked configurations that no other exceeds, in the shape ``(configurations, draws)`` of the speeds."""
    speeds = np.where(checked[:, None], speeds, -np.inf)
    marks = np.empty(speeds.shape, dtype=bool)
    for place, size in enumerate(sizes):
        marks[place] = speeds[place] >= speeds[sizes >= size].max(axis=0)
    marks &= checked[:, None]
    return marks
