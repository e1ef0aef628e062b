"""Which network is faster, and where that turns round: pairs whose order two columns do not agree on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import factor_dims, nodes
from ngbkit.dataset.storage import Data
from ngbkit.errors import UsageError
from ngbkit.metrics import arrays, ratios
from ngbkit.metrics.contracts import Unlike, unranked
from ngbkit.metrics.draws import DRAWS, Sampler, center
from ngbkit.sweep.trials import BASELINE

if TYPE_CHECKING:
    import pandas as pd

_SEED = 0
# The least number of rounds that says anything of its own spread: an interval of 50 %.
_LEVEL = 0.5

# Factors with their values, and the batch size.
Key = tuple[tuple[tuple[str, Any], ...], int]


def reversals(data: Data, *, probability: float = 0.0, unlike: Unlike = "error", untuned: bool = False) -> pd.DataFrame:
    """The pairs of networks whose order by throughput differs between two columns, a device and compiler each.

    Networks are compared at equal factors and batch size. Their throughputs are of different groups, measured one after
    the other: where there are anchors, the drift between groups is estimated for each device, as the robust standard
    deviation of log(anchor's median / identity's median at batch size 1), and goes into the replicates, one number a
    group. What the self-check found between two processes goes into them too.

    Parameters
    ----------
    data
        A dataset or a tree; nodes of a tree are compared with one another.
    probability
        Leave out reversals that are less probable, from 0 to 1.
    unlike
        As for `speedup`: a column that is unlike identity has an order of its own for that reason alone.
    untuned
        Whether columns count whose contract says that they were not tuned, though their compiler is made for it.

    Returns
    -------
    pandas.DataFrame
        ``workload_a, workload_b, <factors>, batch_size, device_1, compiler_1, device_2, compiler_2``; ``ratio_1`` and
        ``ratio_2``, T_a / T_b in either column; and ``probability``, the share of replicates in which both orders are
        as they were measured. The most probable come first. It is NaN where there are no rounds, or fewer than two.

    Raises
    ------
    MetricError
        Contracts differ.
    UsageError
        `probability` is not from 0 to 1, or `unlike` not one of the three.
    """
    import pandas as pd

    if not 0 <= probability <= 1:
        raise UsageError(f"reversals() came with {probability=}; it is from 0 to 1.")
    generator = np.random.default_rng(_SEED)
    prepared = [_prepared(node, unlike, untuned) for node in nodes(data).values()]
    factors = list(dict.fromkeys(name for node in prepared for name in factor_dims(node) if name != "rounds"))
    places: dict[Key, list[tuple[xr.Dataset, dict[str, int]]]] = {}
    for node in prepared:
        for key, place in _places(node):
            places.setdefault(key, []).append((node, place))
    rows: list[dict[str, Any]] = []
    for (values, batch_size), found in places.items():
        rates = xr.concat(
            [_rates(node.isel(place, drop=True), generator) for node, place in found], "workload", join="outer"
        )
        rows += [{**dict(values), "batch_size": batch_size, **row} for row in _reversed(rates)]
    names = ["workload_a", "workload_b", *factors, "batch_size"]
    names += ["device_1", "compiler_1", "device_2", "compiler_2", "ratio_1", "ratio_2", "probability"]
    frame = pd.DataFrame(rows, columns=names)
    kept = frame[~(frame["probability"].astype(float) < probability)]
    return kept.sort_values("probability", ascending=False, kind="stable").reset_index(drop=True)


def _prepared(node: xr.Dataset, unlike: Unlike, untuned: bool) -> xr.Dataset:
    """What the ratios need, every label a dim, with the drift between groups of each device."""
    found = ratios.prepare(node, mask=unranked(node, "reversals", unlike, untuned), anchored=True)
    found["drift"] = _drift(found)
    found = found.drop_vars([name for name in ("anchor", "stopped") if name in found])
    scalars = [name for name in ("workload", "device", "compiler", "batch_size") if name not in found.dims]
    wide = found.expand_dims({name: np.atleast_1d(found[name]) if name in found.coords else [""] for name in scalars})
    return wide.assign(drift=wide["drift"].isel({name: 0 for name in wide["drift"].dims if name != "device"}))


def _drift(data: xr.Dataset) -> xr.DataArray:
    """By device: the standard deviation that drift gives the logarithm of a group's throughputs.

    The anchor and identity at batch size 1 are of two groups, so each has half the variance; and what two processes
    differ by anyhow is in the replicates already.
    """
    if "anchor" not in data or "batch_size" not in data["anchor"].dims or 1 not in data["batch_size"]:
        return xr.zeros_like(data.get("process_sd", xr.DataArray(0.0)))
    first = data["medians"].sel(compiler=BASELINE, batch_size=1, drop=True)
    apart = _log(ratios.ratio(center(data["anchor"], None), center(first, None))).where(data["batch_size"] != 1)
    others = [dim for dim in apart.dims if dim != "device"]
    stacked = abs(apart).stack(group=others)
    deviation = 1.4826 * xr.apply_ufunc(arrays.median, stacked, input_core_dims=[["group"]]).fillna(0)
    beyond: xr.DataArray = np.sqrt((deviation**2 - data["process_sd"] ** 2).clip(min=0) / 2)
    return beyond


def _places(node: xr.Dataset) -> Iterator[tuple[Key, dict[str, int]]]:
    """Where in a node each set of factors and each batch size is."""
    dims = [*(name for name in factor_dims(node) if name != "rounds"), "batch_size"]
    for index in product(*(range(node.sizes[dim]) for dim in dims)):
        place = dict(zip(dims, index, strict=True))
        values = {dim: node[dim].values[at].item() for dim, at in place.items()}
        batch_size = int(values.pop("batch_size"))
        yield (tuple(sorted(values.items())), batch_size), place


def _rates(data: xr.Dataset, generator: np.random.Generator) -> xr.Dataset:
    """The logarithms of the throughputs of one set of factors and one batch size, and their replicates."""
    rates = data["throughput"]
    blank = xr.full_like(rates, np.nan).expand_dims(draw=DRAWS)
    draws = ratios.throughput(data, Sampler(level=_LEVEL, generator=generator)) if "medians" in data else blank
    draws = draws.transpose("workload", "device", "compiler", "draw")
    noise = generator.standard_normal((draws.sizes["workload"], draws.sizes["device"], 1, draws.sizes["draw"]))
    drift = np.broadcast_to(data["drift"].values, draws.sizes["device"])[:, None, None]
    shaken = draws.copy(data=draws.values * np.exp(noise * drift))
    return xr.Dataset({"rate": _log(rates), "draws": _log(shaken)}).reset_coords(drop=True)


def _log(values: xr.DataArray) -> xr.DataArray:
    found: xr.DataArray = xr.apply_ufunc(np.log, values.where(values > 0))
    return found


def _reversed(found: xr.Dataset) -> Iterator[dict[str, Any]]:
    """The pairs of networks whose order differs between two columns."""
    order = ("device", "compiler", "workload")
    columns = list(product(found["device"].values.tolist(), found["compiler"].values.tolist()))
    names = found["workload"].values.tolist()
    rates = found["rate"].transpose(*order).values.reshape(len(columns), len(names))
    draws = found["draws"].transpose(*order, "draw").values.reshape(len(columns), len(names), -1)
    apart = rates[:, :, None] - rates[:, None, :]
    for one, other in combinations(range(len(columns)), 2):
        for a, b in np.argwhere(np.triu(apart[one] * apart[other] < 0)).tolist():
            both = [(draws[at, a] - draws[at, b]) * np.sign(apart[at, a, b]) for at in (one, other)]
            unknown = np.isnan(both).any()
            yield {
                "workload_a": names[a],
                "workload_b": names[b],
                **dict(zip(("device_1", "compiler_1"), columns[one], strict=True)),
                **dict(zip(("device_2", "compiler_2"), columns[other], strict=True)),
                "ratio_1": float(np.exp(apart[one, a, b])),
                "ratio_2": float(np.exp(apart[other, a, b])),
                "probability": float("nan") if unknown else float(np.mean((both[0] > 0) & (both[1] > 0))),
            }
