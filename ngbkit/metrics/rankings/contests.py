"""Contests: columns of which one is the fastest, compilers of a network or networks, compared many at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import MetricError
from ngbkit.metrics.draws import SEED, Sampler
from ngbkit.metrics.rankings.candidates import Cell, ColumnPair, RankingCandidate, find_fastest, pair
from ngbkit.metrics.rankings.networks import NetworkComparison, compare_alike, list_cells

# Contests that are computed at once: few enough for the cache of a core.
_BLOCK = 128


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contest:
    """Columns of one device and batch size of which one is the fastest: a network's compilers, or several networks."""

    device: str
    batch_size: int
    subject: Literal["compiler", "network"]
    first: RankingCandidate  # the one of the highest speed that was checked, unless none was
    comparisons: Sequence[NetworkComparison]  # of the first with each of the others, the closest first

    @property
    def rivals(self) -> list[NetworkComparison]:
        """The comparisons that leave open which column is the fastest."""
        rivals = [
            comparison
            for place, comparison in enumerate(self.comparisons)
            if _leaves_open(comparison, is_closest=place == 0)
        ]
        doubt = sum(1 - comparison.probability for comparison in self.comparisons)
        return rivals or ([] if doubt <= 1 - LEVEL else list(self.comparisons[:1]))

    @property
    def conclusive(self) -> bool:
        """Return whether the first is surely the fastest."""
        return self.first.checked and not self.rivals


def list_contests(data: Data) -> list[Contest]:
    """List the contests of a dataset, of compilers and then of networks; none without rounds.

    Networks with factors do not compete: that a deeper network is slower is no result.
    """
    try:
        cells = list_cells(data, "compare_networks", None, "mask", untuned=False)
    except MetricError:
        return []
    compilers, networks = [], []
    for cell, candidates in cells.items():
        columns: dict[str, list[RankingCandidate]] = {}
        for candidate in candidates:
            columns.setdefault(candidate.network, []).append(candidate)
        fastest = {network: find_fastest(members) for network, members in columns.items()}
        compilers += [
            _pair_columns(cell, "compiler", fastest[network], members)
            for network, members in columns.items()
            if len(members) > 1
        ]
        best = [candidate for candidate in fastest.values() if not candidate.factors]
        best.sort(key=lambda candidate: -candidate.throughput)
        if len(best) > 1:
            first = next((candidate for candidate in best if candidate.checked), best[0])
            networks.append(_pair_columns(cell, "network", first, best))
    return _build_contests([*compilers, *networks])


@dataclass(frozen=True, slots=True)
class _PairedContest:
    """A contest before its columns are compared."""

    cell: Cell
    subject: Literal["compiler", "network"]
    first: RankingCandidate
    pairs: Sequence[ColumnPair]  # of the first with each of the others


def _pair_columns(
    cell: Cell, subject: Literal["compiler", "network"], first: RankingCandidate, members: Sequence[RankingCandidate]
) -> _PairedContest:
    return _PairedContest(cell, subject, first, [pair(first, member) for member in members if member is not first])


def _build_contests(paired: Sequence[_PairedContest]) -> list[Contest]:
    """Compare the columns of each contest with replicates of its own: contests that are alike have the same ones."""
    classes: dict[tuple[Any, ...], list[_PairedContest]] = {}
    for contest in paired:
        classes.setdefault(tuple(each.likeness for each in contest.pairs), []).append(contest)
    contests = {}
    for group in classes.values():
        for block in (group[start : start + _BLOCK] for start in range(0, len(group), _BLOCK)):
            sampler = Sampler(level=LEVEL, generator=np.random.default_rng(SEED), is_shared=True)
            columns = [
                compare_alike(pairs, sampler) for pairs in zip(*(contest.pairs for contest in block), strict=True)
            ]
            for contest, comparisons in zip(block, zip(*columns, strict=True), strict=True):
                contests[id(contest)] = _build_contest(contest, comparisons)
    return [contests[id(contest)] for contest in paired]


def _build_contest(contest: _PairedContest, comparisons: Sequence[NetworkComparison]) -> Contest:
    ordered = sorted(comparisons, key=lambda each: (not each.second.checked, float(each.estimate)))
    device, batch_size = contest.cell
    return Contest(
        device=device, batch_size=batch_size, subject=contest.subject, first=contest.first, comparisons=ordered
    )


def _leaves_open(comparison: NetworkComparison, *, is_closest: bool) -> bool:
    """Return whether a rival may be faster; the closest must be measured in enough uncontended rounds as well."""
    is_slower = comparison.estimate.low > 1 and comparison.probability >= LEVEL
    return not is_slower or (is_closest and comparison.second.checked and not comparison.conclusive)
