"""Reversals: pairs of networks whose order by throughput differs between two columns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import xarray as xr
from scipy.special import ndtr

from ngbkit import validation
from ngbkit.dataset.assembly import factor_dims, nodes
from ngbkit.dataset.contention import find_unchecked
from ngbkit.dataset.long_form import list_factors, list_labels
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL
from ngbkit.metrics import ratios
from ngbkit.metrics.contracts import Unlike, mask_unranked
from ngbkit.metrics.draws import DRAWS, PROBABILITY_LEVEL, SEED, Sampler
from ngbkit.metrics.drift import estimate_drifts
from ngbkit.metrics.statistics import adjust_by_false_discovery

if TYPE_CHECKING:
    import pandas as pd

_PROBABILITY = Annotated[float, validation.number(0, 1, "a number from 0 to 1, such as 0.95")]

# The values of the factors by name, and the batch size.
Key = tuple[tuple[tuple[str, Any], ...], int]


def reversals(data: Data, *, probability: float = 0.0, unlike: Unlike = "error", untuned: bool = False) -> pd.DataFrame:
    """The pairs of networks whose order by throughput differs between two columns, a device and compiler each.

    Networks are compared at equal factors and batch size. Their throughputs belong to different groups, measured one
    after the other: the drift of each device (`ngbkit.metrics.drift`: by anchors and an assumed deviation) is added to
    the replicates, one number per group. So is the deviation between two processes that the self-check measured.

    Parameters
    ----------
    data
        A dataset or a tree; nodes of a tree are compared with one another.
    probability
        Exclude less probable reversals, from 0 to 1.
    unlike
        As for `speedup`: a column that is unlike identity may order networks differently for that reason alone.
    untuned
        Whether to include columns whose contract marks them as untuned, although their compiler supports tuning.

    Returns
    -------
    pandas.DataFrame
        ``workload_a, workload_b, <factors>, batch_size, device_1, compiler_1, device_2, compiler_2``; ``ratio_1`` and
        ``ratio_2``, T_a / T_b in either column; ``probability``, the share of replicates that reproduce both measured
        orders: NaN with fewer than two rounds; ``conclusive``, whether it is real beyond what chance shows in as many
        pairs, by their false discovery rate, and of enough uncontended rounds; and ``checked``, whether the outputs of
        all four trials were compared. Reversals of checked trials come first, the most probable before the others.
        ``attrs["compared"]`` is the number of pairs that were looked at, ``attrs["notes"]`` says how many reversals are
        conclusive.

    Raises
    ------
    MetricError
        Contracts differ.
    UsageError
        `probability` is not from 0 to 1, or `unlike` is invalid.
    """
    import pandas as pd

    validation.check("probability", _PROBABILITY, probability)
    generator = np.random.default_rng(SEED)
    cells: dict[Key, list[xr.Dataset]] = {}
    for node in nodes(data).values():
        for key, cell in _iterate_cells(_prepare_node(node, unlike, untuned)):
            cells.setdefault(key, []).append(cell)
    rows: list[dict[str, Any]] = []
    compared = 0
    for (values, batch_size), parts in cells.items():
        rates = xr.concat([_compute_log_rates(part, generator) for part in parts], "workload", join="outer")
        count, reversed_pairs = _find_reversals(rates)
        rows += [{**dict(values), "batch_size": batch_size, **row} for row in reversed_pairs]
        compared += count
    names = ["workload_a", "workload_b", *list_factors(data), "batch_size"]
    names += ["device_1", "compiler_1", "device_2", "compiler_2", "ratio_1", "ratio_2", "probability", "conclusive"]
    frame = pd.DataFrame(rows, columns=[*names, "checked", "p_value", "uncontended"])
    others = np.ones(compared - len(frame))  # pairs of one order
    chances = adjust_by_false_discovery([*frame.pop("p_value"), *others])[: len(frame)]
    is_usable = frame["checked"].astype(bool) & frame.pop("uncontended").astype(bool)
    frame["conclusive"] = is_usable & (chances <= 1 - LEVEL)
    frame.attrs["compared"] = compared
    sure, is_sampled = int(frame["conclusive"].sum()), bool(frame["probability"].notna().any())
    note = f"{sure:,} of {compared:,} pairs surely change places (false discovery rate {100 * (1 - LEVEL):.0f} %)"
    frame.attrs["notes"] = [note] if is_sampled else []
    probable = frame[~(frame["probability"].astype(float) < probability)]
    return probable.sort_values(["checked", "probability"], ascending=False, kind="stable").reset_index(drop=True)


def _prepare_node(node: xr.Dataset, unlike: Unlike, untuned: bool) -> xr.Dataset:
    """The data from which ratios are computed, every label a dim, with the drift between groups of each device."""
    data = ratios.prepare(node, mask=mask_unranked(node, "reversals", unlike, untuned))
    data["drift"] = ratios.along_devices(node, [drift.sd for drift in estimate_drifts(node).values()], 0.0)
    data["unchecked"] = find_unchecked(node).broadcast_like(data["throughput"])
    data = data.drop_vars("stopped", errors="ignore")
    scalars = [name for name in ("workload", "device", "compiler", "batch_size") if name not in data.dims]
    wide = data.expand_dims({name: np.atleast_1d(data[name]) if name in data.coords else [""] for name in scalars})
    return wide.assign(drift=wide["drift"].isel({name: 0 for name in wide["drift"].dims if name != "device"}))


def _iterate_cells(node: xr.Dataset) -> Iterator[tuple[Key, xr.Dataset]]:
    """The data of each set of factors and each batch size of a node."""
    dims = [*(name for name in factor_dims(node) if name in node["throughput"].dims), "batch_size"]
    for index in np.ndindex(*(node.sizes[dim] for dim in dims)):
        position = dict(zip(dims, index, strict=True))
        values = {dim: list_labels(node, dim)[i] for dim, i in position.items()}
        batch_size = int(values.pop("batch_size"))
        yield (tuple(sorted(values.items())), batch_size), node.isel(position, drop=True)


def _compute_log_rates(data: xr.Dataset, generator: np.random.Generator) -> xr.Dataset:
    """The logarithms of the throughputs of one set of factors and one batch size, and their replicates."""
    rates = data["throughput"]
    blank = xr.full_like(rates, np.nan).expand_dims(draw=DRAWS)
    sampler = Sampler(level=PROBABILITY_LEVEL, generator=generator)
    draws = ratios.throughput(data, sampler) if "medians" in data else blank
    draws = draws.transpose("workload", "device", "compiler", "draw")
    noise = generator.standard_normal((draws.sizes["workload"], draws.sizes["device"], 1, draws.sizes["draw"]))
    drift = np.broadcast_to(data["drift"].values, draws.sizes["device"])[:, None, None]
    noisy = draws.copy(data=draws.values * np.exp(noise * drift))
    variables = {"rate": _log(rates), "draws": _log(noisy), "unchecked": data["unchecked"]}
    variables["contended"] = ~data["conclusive"].broadcast_like(rates)
    return xr.Dataset(variables).reset_coords(drop=True)


def _log(values: xr.DataArray) -> xr.DataArray:
    logarithms: xr.DataArray = xr.apply_ufunc(np.log, values.where(values > 0))
    return logarithms


def _find_reversals(data: xr.Dataset) -> tuple[int, list[dict[str, Any]]]:
    """The number of pairs of networks in two columns, and those whose order differs between the two."""
    dims = ("device", "compiler", "workload")
    columns = list(product(data["device"].values.tolist(), data["compiler"].values.tolist()))
    names = data["workload"].values.tolist()
    rates = data["rate"].transpose(*dims).values.reshape(len(columns), len(names))
    draws = data["draws"].transpose(*dims, "draw").values.reshape(len(columns), len(names), -1)
    # A network of another node has no trial in some columns.
    unchecked, contended = (
        data[name].fillna(False).transpose(*dims).values.reshape(len(columns), len(names)).astype(bool)
        for name in ("unchecked", "contended")
    )
    leads = rates[:, :, None] - rates[:, None, :]
    compared, rows = 0, []
    for first, second in combinations(range(len(columns)), 2):
        compared += int(np.count_nonzero(np.triu(np.isfinite(leads[first] * leads[second]), 1)))
        for a, b in np.argwhere(np.triu(leads[first] * leads[second] < 0)).tolist():
            same = [(draws[i, a] - draws[i, b]) * np.sign(leads[i, a, b]) for i in (first, second)]
            unknown = np.isnan(same).any()
            scores = [each.mean() / each.std() for each in same]
            row = {
                "workload_a": names[a],
                "workload_b": names[b],
                **dict(zip(("device_1", "compiler_1"), columns[first], strict=True)),
                **dict(zip(("device_2", "compiler_2"), columns[second], strict=True)),
                "ratio_1": float(np.exp(leads[first, a, b])),
                "ratio_2": float(np.exp(leads[second, a, b])),
                "probability": float("nan") if unknown else float(np.mean((same[0] > 0) & (same[1] > 0))),
                "p_value": 1 - float(np.prod(ndtr(scores))),
                "checked": not unchecked[np.ix_((first, second), (a, b))].any(),
                "uncontended": not contended[np.ix_((first, second), (a, b))].any(),
            }
            rows.append(row)
    return compared, rows
