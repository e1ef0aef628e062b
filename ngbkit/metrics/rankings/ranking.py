"""Rankings: the fastest compiler of each group, and its probability."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import expand_labels, list_factors, list_trial_dims
from ngbkit.dataset.storage import Data
from ngbkit.metrics import ratios
from ngbkit.metrics.contracts import Unlike, mask_unranked
from ngbkit.metrics.draws import Sampler
from ngbkit.sweep.trials import BASELINE

if TYPE_CHECKING:
    import pandas as pd

_SEED = 0
# The smallest number of rounds from which a spread can be estimated: an interval of 50 %.
_LEVEL = 0.5


def ranking(data: Data, *, unlike: Unlike = "error", untuned: bool = False) -> pd.DataFrame:
    """The compilers of each group, the one that is most probably the fastest first.

    Equally probable ones are ordered by speed: with `identity` in the dataset by their speed-up over it, which is
    paired round by round, so that drift affects all alike; otherwise by throughput.

    Parameters
    ----------
    data
        A dataset or a tree.
    unlike
        As for `speedup`.
    untuned
        Whether to rank columns whose contract marks them as untuned, although their compiler supports tuning.

    Returns
    -------
    pandas.DataFrame
        ``workload, <factors>, batch_size, device, rank, compiler``; ``of_best``, its speed over the highest; and
        ``probability``, the share of replicates in which it is the fastest of its group: NaN with fewer than two
        rounds. Trials without a measurement are excluded.

    Raises
    ------
    MetricError
        Contracts differ.
    UsageError
        `unlike` is invalid.
    """
    import pandas as pd

    generator = np.random.default_rng(_SEED)
    rows = [row for node in nodes(data).values() for row in _rank_node(node, unlike, untuned, generator)]
    names = ["workload", *list_factors(data), "batch_size", "device", "rank", "compiler", "of_best", "probability"]
    return pd.DataFrame(rows, columns=names)


def winners(data: Data, *, unlike: Unlike = "error", untuned: bool = False) -> pd.DataFrame:
    """The compiler of each group that is most probably the fastest, and the one after it.

    Parameters
    ----------
    data, unlike, untuned
        As for `ranking`.

    Returns
    -------
    pandas.DataFrame
        One row per group: ``workload, <factors>, batch_size, device, compiler``; ``probability``, that it is the
        fastest; ``second``, the next compiler, empty where there is none; and ``second_of_best``, its speed over the
        highest.

    Raises
    ------
    MetricError, UsageError
        As for `ranking`.
    """
    ranks = ranking(data, unlike=unlike, untuned=untuned)
    keys = ["workload", *list_factors(data), "batch_size", "device"]
    first = ranks[ranks["rank"] == 1][[*keys, "compiler", "probability"]]
    second = ranks[ranks["rank"] == 2].rename(columns={"compiler": "second", "of_best": "second_of_best"})
    table = first.merge(second[[*keys, "second", "second_of_best"]], on=keys, how="left")
    return table.fillna({"second": ""})


def _rank_node(
    node: xr.Dataset, unlike: Unlike, untuned: bool, generator: np.random.Generator
) -> Iterator[dict[str, Any]]:
    dims = [dim for dim in list_trial_dims(node) if dim not in ("device", "compiler", "batch_size")]
    dims += ["batch_size", "device", "compiler"]
    expanded = expand_labels(node)
    data = ratios.prepare(expanded, mask=mask_unranked(expanded, "ranking", unlike, untuned))
    has_baseline = BASELINE in expanded["compiler"]
    speeds = ratios.speedup(data, "ranking", None) if has_baseline else data["throughput"]
    speeds = speeds.transpose(*dims)
    draws = None
    if "medians" in data:
        sampler = Sampler(level=_LEVEL, generator=generator)
        replicates = ratios.speedup(data, "ranking", sampler) if has_baseline else ratios.throughput(data, sampler)
        draws = replicates.transpose(*dims, "draw").values
    labels = {dim: speeds[dim].values.tolist() for dim in dims}
    for index in np.ndindex(*speeds.shape[:-1]):
        values = speeds.values[index]
        shares = None if draws is None else _compute_win_shares(draws[index], values)
        # The estimate of a wide, skewed interval can be the highest, and rarely that of the fastest.
        keys = (-values,) if shares is None else (-values, -shares)
        order = [column for column in np.lexsort(keys).tolist() if np.isfinite(values[column])]
        group = {dim: labels[dim][i] for dim, i in zip(dims, index, strict=False)}
        for rank, column in enumerate(order, start=1):
            yield {
                **group,
                "rank": rank,
                "compiler": str(labels["compiler"][column]),
                "of_best": float(values[column] / np.nanmax(values)),
                "probability": float("nan") if shares is None else float(shares[column]),
            }


def _compute_win_shares(draws: np.ndarray, values: np.ndarray) -> np.ndarray | None:
    """By compiler: the share of replicates in which it is the fastest; None where one of them has no replicates."""
    finite = np.isfinite(values)
    if not finite.any() or np.isnan(draws[finite]).any():
        return None
    ranked = np.where(finite[:, None], draws, -np.inf)
    shares: np.ndarray = np.bincount(ranked.argmax(axis=0), minlength=len(values)) / draws.shape[-1]
    return shares
