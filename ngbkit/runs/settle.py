"""The plan that settles a run: the groups to measure in more waves, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from ngbkit.device.groups.bundles import describe_group
from ngbkit.metrics.rankings.contests import list_contests
from ngbkit.metrics.rankings.settling import MOST_WAVES, Place, plan_waves
from ngbkit.runs.folders import load_dataset, read_sweep
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.trials import Group
from ngbkit.user_text import format_count, format_duration, format_network

if TYPE_CHECKING:
    from ngbkit.dataset.storage import Data

_MOST_NAMES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Settling:
    """The trials to measure in more waves, with so many rounds and samples each; no trials if none would help."""

    trial_ids: frozenset[str]
    waves: int
    rounds: int
    repeats: int
    description: str
    # Whether networks take turns that did not: the first wave replaces their records, and later ones are joined.
    begins_anew: bool = False

    def apply(self, sweep: Grid) -> Grid:
        """Apply it to the sweep of the run, for one wave: the trials stay the same."""
        return attrs.evolve(
            sweep,
            repeats=self.repeats,
            min_rounds=self.rounds,
            waves=1,
            precision=None,
            max_seconds=None,
            interleave=True,
            together=sweep.together or self.begins_anew,
        )


def plan_settling(folder: Path) -> Settling:
    """Plan what would settle the run in a folder: networks and compilers of which none is the fastest for sure."""
    return plan(load_dataset(folder), read_sweep(folder))


def plan(data: Data, sweep: Grid) -> Settling:
    """Plan what would settle a dataset: inconclusive columns, and those that took turns with them."""
    plan = plan_waves(data, list_contests(data))
    count = len(plan.comparisons) - len(plan.open)
    hopeless = f"{count} of {len(plan.comparisons)} open comparisons would not be conclusive by {MOST_WAVES} waves."
    if plan.floor:
        hopeless += f" Hours change ratios here by up to {100 * plan.floor:.1g} %."
    if not plan.open:
        text = hopeless if count else "Nothing is inconclusive: every comparison of networks and of compilers is sure."
        return Settling(trial_ids=frozenset(), waves=0, rounds=0, repeats=0, description=text)
    measured = {place: {each.compiler for each in candidates} for place, candidates in plan.places.items()}
    groups = [group for group in sweep.groups() if _get_place(group) in measured]
    trials = {
        trial.id for group in groups for trial in group.trials if trial.compiler in measured[_get_place(group)]
    } | {anchor.id for group in groups for anchor in group.anchors}
    names = [f"{describe_group(group)} on {group.device}" for group in groups]
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    text = (
        f"Measuring {', '.join(names[:_MOST_NAMES])}{more} again, in {format_count(plan.waves, 'wave')} of "
        f"{plan.rounds} rounds, about {format_duration(plan.seconds)}."
    )
    return Settling(
        trial_ids=frozenset(trials),
        waves=plan.waves,
        rounds=plan.rounds,
        repeats=plan.repeats,
        description=f"{text} {hopeless}" if count else text,
        begins_anew=plan.begins_anew,
    )


def _get_place(group: Group) -> Place:
    return group.device, group.batch_size, format_network(group.workload.name, group.factors)
