"""Contests: columns of which one is the fastest, compilers of a network or networks, compared many at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import MetricError
from ngbkit.metrics.draws import DRAWS
from ngbkit.metrics.rankings.candidates import Cell, RankingCandidate, find_fastest, find_highest, group_by_network
from ngbkit.metrics.rankings.leads import draw_leads, pair
from ngbkit.metrics.rankings.networks import NetworkComparison, build_comparison, list_cells, select_rivals
from ngbkit.metrics.statistics import adjust_by_false_discovery

Subject = Literal["compiler", "network"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contest:
    """Columns of one device and batch size of which one is the fastest: a network's compilers, or several networks."""

    device: str
    batch_size: int
    subject: Subject
    first: RankingCandidate  # the most probable one of those that were checked, unless none was
    comparisons: Sequence[NetworkComparison]  # of the first with each of the others, the closest first
    # That of each column, by its id: that it is the fastest of those that were checked; of one that was not, that it is
    # faster than all of them. NaN with too few rounds.
    probabilities: dict[int, float]
    family: int = 1  # the number of contests that are judged together
    chance: float = 0.0  # of those that are at least as clear as this, the share that is false on average
    threshold: float = 1 - LEVEL  # the p-value below which another one is clear, too

    @property
    def probability(self) -> float:
        """The probability that the first is the fastest."""
        return self.probabilities[id(self.first)]

    @property
    def columns(self) -> list[RankingCandidate]:
        """The first, and the others, the closest first."""
        return [self.first, *(comparison.second for comparison in self.comparisons)]

    @property
    def rivals(self) -> list[NetworkComparison]:
        """The comparisons that leave open which column is the fastest."""
        rivals = [each for each in self.comparisons if not (each.estimate.low > 1 and each.probability >= LEVEL)]
        # The closest must be measured in enough uncontended rounds as well.
        closest = self.comparisons[:1]
        if closest and closest[0].second.checked and not closest[0].conclusive and closest[0] not in rivals:
            rivals = [*closest, *rivals]
        is_sure = self.probability >= LEVEL and self.chance <= 1 - LEVEL
        return rivals or ([] if is_sure else list(self.comparisons[:1]))

    @property
    def conclusive(self) -> bool:
        """Return whether the first is surely the fastest."""
        return self.first.checked and not self.rivals

    def compute_p_value(self) -> float:
        """Compute the two-sided p-value of "another is as fast as the first"; NaN without intervals."""
        return float(np.max([comparison.compute_p_value() for comparison in self.comparisons]))

    def count_more_waves(self) -> float:
        """Count the further waves that would settle it among all contests of its family."""
        return max(rival.count_more_waves(1 - self.threshold) for rival in self.rivals)


def list_contests(data: Data) -> list[Contest]:
    """List the contests of a dataset, of compilers and then of networks; none without rounds.

    A network at several values of its factors does not compete: that it is slower where it is deeper is no result.
    """
    try:
        cells = list_cells(data, "compare_networks", None, "mask", untuned=False)
    except MetricError:
        return []
    compilers = [(cell, members) for cell, members in iterate_groups(cells) if len(members) > 1]
    rivals = [(cell, select_rivals(candidates)) for cell, candidates in cells.items()]
    networks = [(cell, best) for cell, best in rivals if 1 < len(best) == len({each.workload for each in best})]
    return [*hold_contests("compiler", compilers), *hold_contests("network", networks)]


def iterate_groups(cells: Mapping[Cell, Sequence[RankingCandidate]]) -> Iterator[tuple[Cell, list[RankingCandidate]]]:
    """Iterate over the columns of each network in each cell."""
    for cell, candidates in cells.items():
        yield from ((cell, members) for members in group_by_network(candidates))


def hold_contests(
    subject: Subject, groups: Iterable[tuple[Cell, Sequence[RankingCandidate]]], level: float = LEVEL
) -> list[Contest]:
    """Hold a contest of each group of columns: contests that are alike have the same replicates, and no others.

    Some of many are clear by chance, so they are judged as one family (Benjamini and Hochberg, 1995).
    """
    find_first = find_fastest if subject == "compiler" else find_highest
    columns = [(cell, members, find_first(members)) for cell, members in groups]
    contests = _compare_columns(subject, columns, level)
    # The estimate of a wide, skewed interval can be the highest, and rarely that of the fastest.
    changed = {
        place: ((contest.device, contest.batch_size), contest.columns, best)
        for place, contest in enumerate(contests)
        if (best := _choose_first(contest)) is not contest.first
    }
    again = _compare_columns(subject, list(changed.values()), level)
    for place, contest in zip(changed, again, strict=True):
        contests[place] = replace(contest, probabilities=contests[place].probabilities)
    family = [place for place, contest in enumerate(contests) if contest.comparisons]
    chances = adjust_by_false_discovery([contests[place].compute_p_value() for place in family])
    threshold = (1 - LEVEL) * min(1.0, (1 + np.count_nonzero(chances <= 1 - LEVEL)) / max(len(family), 1))
    for place, chance in zip(family, chances.tolist(), strict=True):
        contests[place] = replace(contests[place], family=len(family), chance=chance, threshold=threshold)
    return contests


def _compare_columns(
    subject: Subject, groups: Sequence[tuple[Cell, Sequence[RankingCandidate], RankingCandidate]], level: float
) -> list[Contest]:
    """Compare the columns of each cell with the first of them, the last entry of each group."""
    paired = [[pair(first, member) for member in members if member is not first] for _, members, first in groups]
    contests = []
    for ((device, batch_size), _, first), pairs, leads in zip(groups, paired, draw_leads(paired, level), strict=True):
        comparisons = [build_comparison(each, *lead, level) for each, lead in zip(pairs, leads, strict=True)]
        contests.append(
            Contest(
                device=device,
                batch_size=batch_size,
                subject=subject,
                first=first,
                comparisons=sorted(comparisons, key=lambda each: (not each.second.checked, float(each.estimate))),
                probabilities=_compute_probabilities(
                    [first, *(each.second for each in comparisons)],
                    np.array([np.zeros(DRAWS), *(-draws for _, draws in leads)]),
                ),
            )
        )
    return contests


def _compute_probabilities(columns: Sequence[RankingCandidate], draws: np.ndarray) -> dict[int, float]:
    """Compute the share of the replicates of speeds, ``(columns, draws)``, in which each column is the fastest."""
    if np.isnan(draws).any() or not all(column.rounds for column in columns):
        return dict.fromkeys(map(id, columns), math.nan)
    checked = np.array([column.checked for column in columns])
    ranked = np.where(checked[:, None], draws, -np.inf)
    shares = np.bincount(ranked.argmax(axis=0), minlength=len(columns)) / draws.shape[1]
    # A column that was not checked takes no share of the others.
    shares = np.where(checked, shares, (draws > ranked.max(axis=0)).mean(axis=1))
    return dict(zip(map(id, columns), shares.tolist(), strict=True))


def _choose_first(contest: Contest) -> RankingCandidate:
    """Choose the most probable column of those that were checked: the first, unless another is more probable."""
    if not contest.first.checked or math.isnan(contest.probability):
        return contest.first
    checked = [column for column in contest.columns if column.checked]
    return max(checked, key=lambda column: contest.probabilities[id(column)])
