"""Reversals: pairs of networks whose order by throughput differs between two columns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from scipy.special import ndtr

from ngbkit import validation
from ngbkit.dataset.long_form import list_factors
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL
from ngbkit.metrics.contracts import Unlike
from ngbkit.metrics.draws import PROBABILITY_LEVEL
from ngbkit.metrics.rankings.candidates import RankingCandidate, list_candidates
from ngbkit.metrics.rankings.leads import ColumnPair, draw_leads, pair
from ngbkit.metrics.statistics import adjust_by_false_discovery

if TYPE_CHECKING:
    import pandas as pd

_PROBABILITY = Annotated[float, validation.number(0, 1, "a number from 0 to 1, such as 0.95")]

# The values of the factors by name, and the batch size.
_Key = tuple[tuple[tuple[str, Any], ...], int]
# The networks of each device and compiler.
_Cell = dict[tuple[str, str], dict[str, RankingCandidate]]


def reversals(data: Data, *, probability: float = 0.0, unlike: Unlike = "error", untuned: bool = False) -> pd.DataFrame:
    """The pairs of networks whose order by throughput differs between two columns, a device and compiler each.

    Networks are compared at equal batch size and factors that they share, in each column as `compare_networks` compares
    them: round by round where they took turns, and else with an allowance for what the device does from minute to
    minute, which is the same for all columns of a network that were measured together.

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
    rows: list[dict[str, Any]] = []
    compared = 0
    for (factors, batch_size), cell in _list_cells(data, unlike, untuned).items():
        count, reversed_pairs = _find_reversals(cell)
        rows += [{**dict(factors), "batch_size": batch_size, **row} for row in reversed_pairs]
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


def _list_cells(data: Data, unlike: Unlike, untuned: bool) -> dict[_Key, _Cell]:
    """List the candidates by set of factors and batch size, in each by column and network."""
    cells: dict[_Key, _Cell] = {}
    groups = list_candidates(data, "reversals", unlike, untuned)
    places = {
        (name, value, candidate.workload)
        for candidates in groups.values()
        for candidate in candidates
        for name, value in candidate.factors.items()
        if value == value
    }
    # A factor of one network at one value, such as the image size of a file, belongs to its name.
    counts = Counter(name for name, _, _ in places)
    for (device, batch_size), candidates in groups.items():
        for candidate in candidates:
            factors = sorted(item for item in candidate.factors.items() if item[1] == item[1] and counts[item[0]] > 1)
            cell = cells.setdefault((tuple(factors), batch_size), {})
            cell.setdefault((device, candidate.compiler), {})[candidate.workload] = candidate
    return cells


def _find_reversals(cell: _Cell) -> tuple[int, list[dict[str, Any]]]:
    """The number of pairs of networks in two columns, and those whose order differs between the two."""
    networks = list(dict.fromkeys(network for members in cell.values() for network in members))
    pairs = {
        (column, names): pair(members[names[0]], members[names[1]])
        for column, members in cell.items()
        for names in combinations(networks, 2)
        if members.keys() >= {*names}
    }
    sides = [
        [pairs[first, names], pairs[second, names]]
        for first, second in combinations(cell, 2)
        for names in combinations(networks, 2)
        if {(first, names), (second, names)} <= pairs.keys()
    ]
    reversed_pairs = [both for both in sides if both[0].log_ratio * both[1].log_ratio < 0]
    replicates = draw_leads(reversed_pairs, PROBABILITY_LEVEL)
    rows = [
        _build_row(both, [draws for _, draws in leads]) for both, leads in zip(reversed_pairs, replicates, strict=True)
    ]
    return len(sides), rows


def _build_row(pairs: Sequence[ColumnPair], draws: Sequence[np.ndarray]) -> dict[str, Any]:
    same = [each * np.sign(columns.log_ratio) for columns, each in zip(pairs, draws, strict=True)]
    candidates = [candidate for each in pairs for candidate in each.columns]
    (a, b), (second, _) = (each.columns for each in pairs)
    return {
        "workload_a": a.workload,
        "workload_b": b.workload,
        "device_1": a.device,
        "compiler_1": a.compiler,
        "device_2": second.device,
        "compiler_2": second.compiler,
        "ratio_1": math.exp(pairs[0].log_ratio),
        "ratio_2": math.exp(pairs[1].log_ratio),
        "probability": math.nan if np.isnan(same).any() else float(np.mean((same[0] > 0) & (same[1] > 0))),
        "p_value": 1 - float(np.prod(ndtr([each.mean() / each.std() for each in same]))),
        "checked": all(candidate.checked for candidate in candidates),
        "uncontended": all(candidate.conclusive for candidate in candidates),
    }
