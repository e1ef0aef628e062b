"""The plan of the waves that would settle what a dataset leaves open."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL, find_quantile
from ngbkit.metrics.rankings.candidates import Cell, RankingCandidate, list_candidates
from ngbkit.metrics.rankings.contests import Contest
from ngbkit.metrics.rankings.networks import NetworkComparison, iterate_comparisons

Place = tuple[str, int, str]
"""A device, a batch size and a network."""

# The number of waves is itself an estimate: with exactly as many, half of the comparisons would stay inconclusive.
_MARGIN = 1.5
# More waves than this take hours, for a difference of no use.
MOST_WAVES = 30
# Starting the process of a trial, and the calls beside the timed ones.
_START_S, _OVERHEAD, _SAMPLE_S = 1.0, 1.3, 0.005


@dataclass(frozen=True, kw_only=True)
class WavePlan:
    """The waves that would settle comparisons of which it is open which side is faster."""

    # Each with the further waves that it needs.
    comparisons: Sequence[tuple[Cell, NetworkComparison, float]]
    # All columns of the dataset, by device and batch size.
    cells: dict[Cell, list[RankingCandidate]]

    @cached_property
    def open(self) -> list[tuple[Cell, NetworkComparison, float]]:
        """Those that some more waves settle."""
        return [(cell, each, more) for cell, each, more in self.comparisons if more <= MOST_WAVES]

    @property
    def floor(self) -> float:
        """The largest half width of the others that no number of waves undercuts, as a share; 0 without a history."""
        hopeless = [each for _, each, more in self.comparisons if more > MOST_WAVES]
        return math.expm1(find_quantile(LEVEL) * max((each.lead.hours_sd for each in hopeless), default=0.0))

    @property
    def waves(self) -> int:
        """The further waves."""
        return min(MOST_WAVES, math.ceil(_MARGIN * max(more for _, _, more in self.open))) if self.open else 0

    @property
    def rounds(self) -> int:
        """The rounds of a wave."""
        return max((each.wave_rounds for _, each, _ in self.open), default=0)

    @property
    def repeats(self) -> int:
        """The samples of a trial in a wave."""
        pairs = [candidate for _, each, _ in self.open for candidate in (each.first, each.second)]
        return self.rounds * max((math.ceil(each.samples / max(len(each.rounds), 1)) for each in pairs), default=0)

    @property
    def begins_anew(self) -> bool:
        """True where networks take turns that did not: rounds of different times tell nothing beside them."""
        return any(each.lead.compared != "side by side" for _, each, _ in self.open)

    @cached_property
    def places(self) -> dict[Place, list[RankingCandidate]]:
        """The columns to measure by place: all that took turns with a side of a comparison."""
        times = {(cell, candidate.time) for cell, each, _ in self.open for candidate in (each.first, each.second)}
        places: dict[Place, list[RankingCandidate]] = {}
        for cell, candidates in self.cells.items():
            for candidate in candidates:
                if (cell, candidate.time) in times:
                    places.setdefault((*cell, candidate.network), []).append(candidate)
        return places

    @property
    def seconds(self) -> float:
        """About how long they take."""
        return self.waves * sum(
            _START_S + _OVERHEAD * self.repeats * max(batch_size / candidate.throughput, _SAMPLE_S)
            for (_, batch_size, _), candidates in self.places.items()
            for candidate in candidates
        )


def plan_waves(data: Data, contests: Sequence[Contest]) -> WavePlan:
    """Plan the waves that settle the contests; where all are conclusive, which of each two networks is faster."""
    return WavePlan(
        comparisons=[*_list_rivals(contests)] or [*_list_inconclusive(data)],
        cells=list_candidates(data, "settle", "mask", untuned=True),
    )


def _list_rivals(contests: Sequence[Contest]) -> Iterator[tuple[Cell, NetworkComparison, float]]:
    for contest in contests:
        for rival in contest.rivals:
            if rival.first.checked and rival.second.checked:
                yield (contest.device, contest.batch_size), rival, rival.count_more_waves(1 - contest.threshold)


def _list_inconclusive(data: Data) -> Iterator[tuple[Cell, NetworkComparison, float]]:
    for cell, each in iterate_comparisons(data):
        if not each.conclusive:
            yield cell, each, each.count_more_waves()
