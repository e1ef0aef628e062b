"""The fastest network, the certainty of this result, and the measurements that would settle it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.special import stdtr

from ngbkit import validation
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL, find_quantile
from ngbkit.errors import MetricError, UnknownNameError
from ngbkit.metrics.contracts import Unlike
from ngbkit.metrics.estimate import Estimate
from ngbkit.metrics.rankings.candidates import Cell, RankingCandidate, find_fastest, group_by_network, list_candidates
from ngbkit.metrics.rankings.leads import ColumnPair, Lead, draw_leads, pair
from ngbkit.metrics.statistics import FAMILY_DEGREES

if TYPE_CHECKING:
    import pandas as pd

By = Literal["best", "compiler"]

# A wave has at least as many rounds: fewer allow no interval.
FEWEST_ROUNDS = 10
# Fewer would call no lead sure, however clear.
_FEWEST_DEGREES = 2.0
# Rounds that resemble each other may understate their spread by this. Of two equal columns with a correlation of 0.8,
# one wins in 9.8 % of simulated runs of 10 rounds without it, and in 3.2 % with it; of 20 rounds in 7.7 and 4.2 %.
_UNDERSTATED = 3.0


def compare_networks(
    data: Data, compiler: str | None = None, *, ci: float = LEVEL, unlike: Unlike = "error", untuned: bool = False
) -> pd.DataFrame:
    """Every pair of networks at each device and batch size: how much faster one is, and whether that is sure.

    Networks that took turns (``--together``) are compared round by round, so that what the machine does meanwhile
    affects both alike. Networks that were measured one after the other are compared by their medians, and their
    interval has an allowance for what a machine does from minute to minute: what anchors show where the baseline was
    measured repeatedly, together with `ngbkit.metrics.drift.APART_SD`. All intervals have the allowance for two
    processes of `ngbkit.metrics.speedup`.

    Parameters
    ----------
    data
        A dataset or a tree; the networks of all nodes are compared with one another, at all values of their factors.
    compiler
        The compiler of every network. Default: of each network its fastest whose outputs were checked, by rounds
        shared with identity.
    ci
        The probability of the interval.
    unlike, untuned
        As for `ranking`.

    Returns
    -------
    pandas.DataFrame
        ``device, batch_size, network_a, compiler_a, network_b, compiler_b``, the faster network first; ``ratio``, T_a /
        T_b, with ``ci_low`` and ``ci_high``; ``allowance``, the share of the width of the interval that allows for
        different times (0 where they took turns); ``compared``, ``"side by side"``, ``"normalised by anchors"`` or
        ``"minutes apart"``; ``probability``, that the first is faster; ``conclusive``, whether the interval excludes 1
        and both were checked in enough uncontended rounds, not all like the one before; ``rounds``, those that the
        ratio is of; and ``more_waves``, about how many more would settle it, each with new processes and as many rounds
        (``ngbkit runs --settle RUN``): infinite where hours change the ratio by as much as the networks differ. Waves
        count from 0 for networks that did not take turns.

    Raises
    ------
    MetricError
        Contracts differ, or there are no rounds.
    UnknownNameError, UsageError
        No such compiler; `ci` is no probability, or `unlike` is invalid.
    """
    import pandas as pd

    validation.check("ci", validation.Probability, ci)
    rows = [
        {
            "device": device,
            "batch_size": batch_size,
            "network_a": comparison.first.network,
            "compiler_a": comparison.first.compiler,
            "network_b": comparison.second.network,
            "compiler_b": comparison.second.compiler,
            "ratio": float(comparison.estimate),
            "ci_low": comparison.estimate.low,
            "ci_high": comparison.estimate.high,
            "allowance": comparison.allowance,
            "compared": comparison.lead.compared,
            "probability": comparison.probability,
            "conclusive": comparison.conclusive,
            "rounds": comparison.lead.rounds,
            "more_waves": comparison.count_more_waves(),
        }
        for (device, batch_size), candidates in list_cells(data, "compare_networks", compiler, unlike, untuned).items()
        for comparison in compare_pairs([*combinations(select_best(candidates), 2)], ci)
    ]
    names = ["device", "batch_size", "network_a", "compiler_a", "network_b", "compiler_b", "ratio", "ci_low", "ci_high"]
    names += ["allowance", "compared", "probability", "conclusive", "rounds", "more_waves"]
    return pd.DataFrame(rows, columns=names)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NetworkComparison:
    """Two networks, and how far it is known which one is faster."""

    first: RankingCandidate
    second: RankingCandidate
    lead: Lead
    estimate: Estimate  # of the ratio
    probability: float
    level: float

    @property
    def conclusive(self) -> bool:
        """Return whether the interval excludes 1, of enough uncontended rounds, and both were checked."""
        excludes = self.estimate.low > 1 or self.estimate.high < 1
        if excludes and self.lead.rounds < self.lead.rounds_needed:
            fixed, of_rounds = self._divide_width(find_quantile(self.level))
            excludes = abs(self.lead.log_ratio) > math.hypot(fixed, _UNDERSTATED * of_rounds)
        return self.estimate.conclusive and excludes

    @property
    def allowance(self) -> float:
        """The share of the interval's width that allows for different times."""
        within = math.hypot(self.lead.rounds_sd, self.lead.process_sd)
        total = math.hypot(within, self.lead.between_sd)
        return 1 - within / total if total else 0.0

    def compute_p_value(self) -> float:
        """Compute the two-sided p-value of "the second is as fast": 1 where it is faster, NaN without an interval.

        The spread that few rounds show is uncertain, the more so the more each resembles the one before, and what is
        allowed for beside it is not (Satterthwaite, 1946).
        """
        deviation = math.log(self.estimate / self.estimate.low) / find_quantile(self.level)
        if not deviation > 0:
            return math.nan
        of_rounds = min(1.0, (self.lead.rounds_sd / deviation) ** 2)
        of_spread = max(self.lead.effective_rounds - 1, _FEWEST_DEGREES)
        freedom = min(FAMILY_DEGREES * math.sqrt(self.lead.rounds), of_spread) / max(of_rounds**2, 1e-6)
        return min(1.0, 2 * float(stdtr(freedom, -math.log(self.estimate) / deviation)))

    @property
    def wave_rounds(self) -> int:
        """The rounds of a wave."""
        return max(round(self.lead.rounds / self.lead.waves), FEWEST_ROUNDS)

    def count_more_waves(self, level: float | None = None) -> float:
        """Count the further waves, each with as many rounds, that would settle it: side by side, where they were not.

        What rounds and processes leave of the side of the interval shrinks with the square root of the waves (Kalibera
        and Jones, 2013, "Rigorous Benchmarking in Reasonable Time"); what hours change stays.
        """
        if self.conclusive and level is None:
            return 0.0
        if math.isnan(self.probability):
            return 1.0
        lead, quantile = self.lead, find_quantile(level or self.level)
        room = lead.log_ratio**2 - (quantile * lead.hours_sd) ** 2
        if room <= 0:
            return math.inf
        of_processes = quantile**2 * (lead.process_sd**2 - lead.hours_sd**2)
        of_rounds = self._divide_width(quantile)[1] ** 2 * lead.rounds / (lead.waves * self.wave_rounds)
        needed = max(lead.waves * (of_rounds + of_processes) / room, lead.rounds_needed / self.wave_rounds)
        return float(max(math.ceil(needed - (lead.waves if lead.compared == "side by side" else 0)), 1))

    def _divide_width(self, quantile: float) -> tuple[float, float]:
        """Divide the side of the interval towards 1 into what is allowed for and what the rounds show."""
        fixed = quantile * math.hypot(self.lead.process_sd, self.lead.between_sd)
        side = self.lead.log_ratio - math.log(self.estimate.low if self.estimate > 1 else self.estimate.high)
        return fixed, math.sqrt(max(side**2 - fixed**2, (quantile * self.lead.rounds_sd) ** 2))


def iterate_comparisons(data: Data) -> Iterator[tuple[Cell, NetworkComparison]]:
    """Compare every pair of networks, each with its best compiler, and that with its others; all of checked columns."""
    for cell, candidates in list_cells(data, "compare_networks", None, "mask", untuned=False).items():
        checked = [candidate for candidate in candidates if candidate.checked]
        best = select_best(checked)
        pairs = [*combinations(best, 2)]
        pairs += [(a, b) for a, b in product(best, checked) if a.network == b.network and a is not b]
        yield from ((cell, comparison) for comparison in compare_pairs(pairs, LEVEL))


def list_cells(
    data: Data, metric: str, compiler: str | None, unlike: Unlike, untuned: bool
) -> dict[Cell, list[RankingCandidate]]:
    cells = {
        cell: timed
        for cell, candidates in list_candidates(data, metric, unlike, untuned).items()
        if (timed := [candidate for candidate in candidates if candidate.rounds])
    }
    if not cells:
        raise MetricError(
            f"{metric}() compares rounds, but this dataset has no measurement with round numbers. "
            "Use the dataset of a run, with its samples."
        )
    compilers = sorted({candidate.compiler for candidates in cells.values() for candidate in candidates})
    if compiler is not None and compiler not in compilers:
        raise UnknownNameError("compiler", compiler, compilers)
    return {
        cell: [candidate for candidate in candidates if compiler in (None, candidate.compiler)]
        for cell, candidates in cells.items()
    }


def select_best(candidates: Sequence[RankingCandidate]) -> list[RankingCandidate]:
    """Of each network the column of its fastest compiler, the network of the highest throughput first."""
    return sorted(map(find_fastest, group_by_network(candidates)), key=lambda candidate: -candidate.throughput)


def select_rivals(candidates: Sequence[RankingCandidate]) -> list[RankingCandidate]:
    """Of each network the best column; of those at several depths only where no two others are: less is faster."""
    best = select_best(candidates)
    counts = Counter(candidate.workload for candidate in best)
    alone = [candidate for candidate in best if counts[candidate.workload] == 1]
    return alone if len(alone) > 1 else best


def compare_candidates(first: RankingCandidate, second: RankingCandidate, level: float) -> NetworkComparison:
    """Compare two candidates by rounds that both share where there are any."""
    return compare_pairs([(first, second)], level)[0]


def compare_pairs(pairs: Sequence[tuple[RankingCandidate, RankingCandidate]], level: float) -> list[NetworkComparison]:
    """Compare the candidates of each pair, whatever the others are."""
    contests = [[pair(*candidates)] for candidates in pairs]
    return [
        build_comparison(each, *lead, level)
        for (each,), (lead,) in zip(contests, draw_leads(contests, level), strict=True)
    ]


def build_comparison(columns: ColumnPair, lead: Lead, draws: np.ndarray, level: float) -> NetworkComparison:
    """Build the comparison of a pair from the replicates of its lead."""
    first, second = columns.columns
    return NetworkComparison(
        first=first,
        second=second,
        lead=lead,
        estimate=Estimate(math.exp(lead.log_ratio), *lead.interval, conclusive=first.conclusive and second.conclusive),
        probability=math.nan if np.isnan(draws).any() else float((draws > 0).mean()),
        level=level,
    )
