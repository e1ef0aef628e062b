"""Which compiler is the fastest for a network, and how sure that is."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import factor_dims, nodes
from ngbkit.dataset.storage import Data
from ngbkit.metrics import ratios
from ngbkit.metrics.contracts import Unlike, unranked
from ngbkit.metrics.draws import Sampler
from ngbkit.sweep.trials import BASELINE

if TYPE_CHECKING:
    import pandas as pd

_SEED = 0
# The least number of rounds that says anything of its own spread: an interval of 50 %.
_LEVEL = 0.5


def ranking(data: Data, *, unlike: Unlike = "error", untuned: bool = False) -> pd.DataFrame:
    """The compilers of each group, the fastest first.

    Where `identity` is among them they are ordered by their speed-up over it, which is paired round by round, so that
    drift hits all alike; else by throughput.

    Parameters
    ----------
    data
        A dataset or a tree.
    unlike
        As for `speedup`.
    untuned
        Whether columns count whose contract says that they were not tuned, though their compiler is made for it.

    Returns
    -------
    pandas.DataFrame
        ``workload, <factors>, batch_size, device, rank, compiler``; ``of_best``, its speed over that of the first; and
        ``probability``, the share of replicates in which it is the fastest of its group: NaN where there are no rounds,
        or fewer than two. Trials without a measurement have no rank and are left out.

    Raises
    ------
    MetricError
        Contracts differ.
    UsageError
        `unlike` is not one of its three values.
    """
    import pandas as pd

    generator = np.random.default_rng(_SEED)
    rows: list[dict[str, Any]] = []
    factors: dict[str, None] = {}
    for node in nodes(data).values():
        dims = [name for name in factor_dims(node) if name != "rounds"]
        factors |= dict.fromkeys(dims)
        rows += _ranked(node, dims, unlike, untuned, generator)
    names = ["workload", *factors, "batch_size", "device", "rank", "compiler", "of_best", "probability"]
    return pd.DataFrame(rows, columns=names)


def _ranked(
    node: xr.Dataset, factors: list[str], unlike: Unlike, untuned: bool, generator: np.random.Generator
) -> list[dict[str, Any]]:
    labels = ["workload", *factors, "batch_size", "device", "compiler"]
    scalars = [name for name in labels if name not in node.dims and name in node.coords]
    wide = node.expand_dims(scalars)
    found = ratios.prepare(wide, mask=unranked(wide, "ranking", unlike, untuned))
    based = BASELINE in wide["compiler"]
    sampler = Sampler(level=_LEVEL, generator=generator) if "medians" in found else None
    speed = ratios.speedup(found, "ranking", None) if based else found["throughput"]
    speed = speed.transpose(*labels)
    draws = None
    if sampler is not None:
        drawn = ratios.speedup(found, "ranking", sampler) if based else ratios.throughput(found, sampler)
        draws = drawn.transpose(*labels, "draw").values
    rows: list[dict[str, Any]] = []
    for place in product(*(range(speed.sizes[name]) for name in labels[:-1])):
        values = speed.values[place]
        first = None if draws is None else _first(draws[place], values)
        order = [index for index in np.argsort(-values, kind="stable").tolist() if np.isfinite(values[index])]
        where = {name: speed[name].values.tolist()[at] for name, at in zip(labels[:-1], place, strict=True)}
        rows += [
            {
                **where,
                "rank": rank,
                "compiler": str(speed["compiler"].values[index]),
                "of_best": float(values[index] / values[order[0]]),
                "probability": float("nan") if first is None else float(first[index]),
            }
            for rank, index in enumerate(order, start=1)
        ]
    return rows


def _first(draws: np.ndarray, values: np.ndarray) -> np.ndarray | None:
    """By compiler: in which share of the replicates it is the fastest; None where one of them has no replicates."""
    there = np.isfinite(values)
    if not there.any() or np.isnan(draws[there]).any():
        return None
    known = np.where(there[:, None], draws, -np.inf)
    found: np.ndarray = np.bincount(known.argmax(axis=0), minlength=len(values)) / draws.shape[-1]
    return found
