"""Rankings: the fastest compiler of each group, and its probability."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.contention import find_unchecked
from ngbkit.dataset.long_form import expand_labels, list_factors, list_labels, list_trial_dims
from ngbkit.dataset.storage import Data
from ngbkit.metrics import ratios
from ngbkit.metrics.contracts import Unlike, mask_unranked
from ngbkit.metrics.draws import PROBABILITY_LEVEL, SEED, Sampler
from ngbkit.sweep.trials import BASELINE

if TYPE_CHECKING:
    import pandas as pd


def ranking(data: Data, *, unlike: Unlike = "error", untuned: bool = False) -> pd.DataFrame:
    """The compilers of each group, the one that is most probably the fastest first.

    Equally probable ones are ordered by speed: with `identity` in the dataset by their speed-up over it, which is
    paired round by round, so that drift affects all alike; otherwise by throughput. Those whose outputs were not
    checked are the last of their group, however fast they are.

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
        ``workload, <factors>, batch_size, device, rank, compiler``; ``of_best``, its speed over the highest that was
        checked; ``probability``, the share of replicates in which it is the fastest of its group, of those that were
        checked: NaN with fewer than two rounds; and ``checked``, whether its outputs were compared. Trials without a
        measurement are excluded.

    Raises
    ------
    MetricError
        Contracts differ.
    UsageError
        `unlike` is invalid.
    """
    import pandas as pd

    generator = np.random.default_rng(SEED)
    rows = [row for node in nodes(data).values() for row in _rank_node(node, unlike, untuned, generator)]
    names = ["workload", *list_factors(data), "batch_size", "device", "rank", "compiler", "of_best", "probability"]
    names.append("checked")
    return pd.DataFrame(rows, columns=names).astype({"checked": bool})


def winners(data: Data, *, unlike: Unlike = "error", untuned: bool = False) -> pd.DataFrame:
    """The compiler of each group that is most probably the fastest, and the one after it, of those that were checked.

    Parameters
    ----------
    data, unlike, untuned
        As for `ranking`.

    Returns
    -------
    pandas.DataFrame
        One row per group: ``workload, <factors>, batch_size, device, compiler``, empty where none was checked;
        ``probability``, that it is the fastest; ``second``, the next compiler, empty where there is none;
        ``second_of_best``, its speed over the highest; and ``unchecked``, the faster compilers whose outputs were not
        checked, with commas.

    Raises
    ------
    MetricError, UsageError
        As for `ranking`.
    """
    ranks = ranking(data, unlike=unlike, untuned=untuned)
    keys = ["workload", *list_factors(data), "batch_size", "device"]
    checked, faster = ranks[ranks["checked"]], ranks[~ranks["checked"] & (ranks["of_best"] >= 1)]
    groups = ranks[ranks["rank"] == 1][keys]
    first = groups.merge(checked[checked["rank"] == 1][[*keys, "compiler", "probability"]], on=keys, how="left")
    second = checked[checked["rank"] == 2].rename(columns={"compiler": "second", "of_best": "second_of_best"})
    table = first.merge(second[[*keys, "second", "second_of_best"]], on=keys, how="left")
    unchecked = faster.groupby(keys, sort=False, dropna=False)["compiler"].agg(",".join).rename("unchecked")
    table = table.merge(unchecked.reset_index(), on=keys, how="left")
    return table.fillna({"compiler": "", "second": "", "unchecked": ""})


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
        sampler = Sampler(level=PROBABILITY_LEVEL, generator=generator)
        replicates = ratios.speedup(data, "ranking", sampler) if has_baseline else ratios.throughput(data, sampler)
        draws = replicates.transpose(*dims, "draw").values
    labels = {dim: list_labels(speeds, dim) for dim in dims}
    is_unchecked = find_unchecked(expanded).broadcast_like(speeds).transpose(*dims).values
    for index in np.ndindex(*speeds.shape[:-1]):
        values, unchecked = speeds.values[index], is_unchecked[index]
        shares = None if draws is None else _compute_win_shares(draws[index], values, unchecked)
        checked = values[~unchecked & np.isfinite(values)]
        highest = np.nanmax(checked if len(checked) else values) if np.isfinite(values).any() else np.nan
        # The estimate of a wide, skewed interval can be the highest, and rarely that of the fastest.
        keys = (-values, unchecked) if shares is None else (-values, -shares, unchecked)
        order = [column for column in np.lexsort(keys).tolist() if np.isfinite(values[column])]
        group = {dim: labels[dim][i] for dim, i in zip(dims, index, strict=False)}
        for rank, column in enumerate(order, start=1):
            yield {
                **group,
                "rank": rank,
                "compiler": str(labels["compiler"][column]),
                "of_best": float(values[column] / highest),
                "probability": float("nan") if shares is None else float(shares[column]),
                "checked": not unchecked[column],
            }


def _compute_win_shares(draws: np.ndarray, values: np.ndarray, unchecked: np.ndarray) -> np.ndarray | None:
    """By compiler: the share of replicates in which it is the fastest; None where one of them has no replicates.

    One that was not checked has the share in which it is faster than all that were, and takes none of theirs.
    """
    finite = np.isfinite(values)
    if not finite.any() or np.isnan(draws[finite]).any():
        return None
    ranked = np.where((finite & ~unchecked)[:, None], draws, -np.inf)
    shares: np.ndarray = np.bincount(ranked.argmax(axis=0), minlength=len(values)) / draws.shape[-1]
    return np.where(unchecked, (draws > ranked.max(axis=0)).mean(axis=-1), shares)
