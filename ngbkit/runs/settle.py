"""The plan that settles a run: the groups to measure again side by side, and their number of rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from ngbkit.device.groups.bundles import describe_group
from ngbkit.metrics.rankings.candidates import Cell, RankingCandidate, list_candidates
from ngbkit.metrics.rankings.networks import NetworkComparison, iterate_comparisons
from ngbkit.runs.folders import load_dataset, read_sweep
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.trials import Group
from ngbkit.user_text import format_duration, format_network

if TYPE_CHECKING:
    from ngbkit.dataset.storage import Data

# The number of rounds is itself an estimate: with exactly as many, half of the comparisons would stay inconclusive.
_MARGIN = 1.5
# More rounds than this would take hours for a difference that no one can use.
_MOST_ROUNDS = 1000
# Loading a trial, and the calls beside the timed ones.
_LOAD_S, _OVERHEAD = 6.0, 1.3
_SAMPLE_S = 0.005
_MOST_NAMES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Settling:
    """The trials to measure again, side by side, with so many rounds and samples each; no trials if none would help."""

    trial_ids: frozenset[str]
    rounds: int
    repeats: int
    seconds: float
    description: str

    def apply(self, sweep: Grid) -> Grid:
        """Apply it to the sweep of the run: the trials stay the same."""
        return attrs.evolve(
            sweep,
            repeats=self.repeats,
            min_rounds=self.rounds,
            precision=None,
            max_seconds=None,
            interleave=True,
            together=True,
        )


def plan_settling(folder: Path) -> Settling:
    """Plan what would settle the run in a folder: networks and compilers of which none is the fastest for sure."""
    return plan(load_dataset(folder), read_sweep(folder))


def plan(data: Data, sweep: Grid) -> Settling:
    """Plan what would settle a dataset: inconclusive networks, and those that took turns with them."""
    inconclusive = [(cell, each) for cell, each in iterate_comparisons(data) if not each.conclusive]
    open_pairs = [(cell, each) for cell, each in inconclusive if _count_rounds(each) <= _MOST_ROUNDS]
    count = len(inconclusive) - len(open_pairs)
    hopeless = f"{count} of {len(inconclusive)} open comparisons would not be conclusive by {_MOST_ROUNDS} rounds."
    if not open_pairs:
        text = hopeless if count else "Nothing is inconclusive: every comparison of networks and of compilers is sure."
        return Settling(trial_ids=frozenset(), rounds=0, repeats=0, seconds=0.0, description=text)
    places = _list_places(data, open_pairs)
    pairs = [candidate for _, each in open_pairs for candidate in (each.first, each.second)]
    rounds = max(math.ceil(_MARGIN * _count_rounds(each)) for _, each in open_pairs)
    repeats = rounds * max(math.ceil(candidate.samples / max(len(candidate.rounds), 1)) for candidate in pairs)
    seconds = sum(
        _LOAD_S + _OVERHEAD * repeats * max(batch_size / candidate.throughput, _SAMPLE_S)
        for (_, batch_size, _), candidates in places.items()
        for candidate in candidates
    )
    measured = {place: {candidate.compiler for candidate in candidates} for place, candidates in places.items()}
    groups = [group for group in sweep.groups() if _get_place(group) in measured]
    trials = {
        trial.id for group in groups for trial in group.trials if trial.compiler in measured[_get_place(group)]
    } | {anchor.id for group in groups for anchor in group.anchors}
    names = [f"{describe_group(group)} on {group.device}" for group in groups]
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    text = (
        f"Measuring again, side by side: {', '.join(names[:_MOST_NAMES])}{more}; {rounds} rounds, "
        f"about {format_duration(seconds)}."
    )
    return Settling(
        trial_ids=frozenset(trials),
        rounds=rounds,
        repeats=repeats,
        seconds=seconds,
        description=f"{text} {hopeless}" if count else text,
    )


def _count_rounds(comparison: NetworkComparison) -> float:
    """Count the rounds, side by side, that would settle a comparison."""
    more = comparison.count_more_rounds()
    return more + (comparison.lead.rounds if comparison.lead.compared == "side by side" else 0)


def _list_places(
    data: Data, pairs: Sequence[tuple[Cell, NetworkComparison]]
) -> dict[tuple[str, int, str], list[RankingCandidate]]:
    """List what is measured again, by device, batch size and network: all that took turns with a side of a pair."""
    times = {(cell, candidate.time) for cell, each in pairs for candidate in (each.first, each.second)}
    places: dict[tuple[str, int, str], list[RankingCandidate]] = {}
    for cell, candidates in list_candidates(data, "settle", "mask", untuned=True).items():
        for candidate in candidates:
            if (cell, candidate.time) in times:
                places.setdefault((*cell, candidate.network), []).append(candidate)
    return places


def _get_place(group: Group) -> tuple[str, int, str]:
    return group.device, group.batch_size, format_network(group.workload.name, group.factors)
