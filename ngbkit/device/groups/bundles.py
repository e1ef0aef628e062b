"""The jobs of a bundle of groups, which are timed in the same rounds, and the description of their progress."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from ngbkit.device.timing.patience import SPARED
from ngbkit.sweep.column import BASELINE
from ngbkit.sweep.trials import Bundle, Group, Trial
from ngbkit.sweep.variables import WAVE_STRIDE
from ngbkit.user_text import format_network, join_names

# The width of the random number of a set of trials that take turns: a float holds it exactly.
_NUMBER_BITS = 40
# Rounds of two attempts at a group never share numbers, since they did not run side by side. Those of a plan are a
# stride apart; those of a later plan begin at a random number, and 32 bits hold them all.
_LATER_ROUNDS = range(500_000_000, 1_500_000_000)
# A progress text names so many networks.
_MOST_NAMES = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Job:
    """A trial to load into a worker, with its group and the prepared network."""

    trial: Trial
    group: Group
    prepared: Mapping[str, Any]


def draw_number() -> int:
    """Draw the number of a set of trials that take turns in the same rounds."""
    return secrets.randbits(_NUMBER_BITS) | 1


def iterate_first_rounds(*, is_first: bool) -> Iterator[int]:
    """Yield the first round of each attempt at a bundle: a later plan never continues what an earlier one measured."""
    return count(0 if is_first else _LATER_ROUNDS[secrets.randbelow(len(_LATER_ROUNDS))], WAVE_STRIDE)


def shuffle(jobs: Sequence[Job]) -> list[Job]:
    """Shuffle the jobs of each group: a later wave starts its processes in another order."""
    groups = list(dict.fromkeys(id(job.group) for job in jobs))
    return sorted(jobs, key=lambda job: (groups.index(id(job.group)), secrets.randbits(32)))


def has_baseline(bundle: Bundle, jobs: Sequence[Job]) -> bool:
    """Return whether the baseline of the bundle's first network, to which ties refer, is itself among the jobs."""
    return any(job.group is bundle.groups[0] and job.trial.compiler == BASELINE for job in jobs if not job.trial.beside)


def find_earlier_group(jobs: Sequence[Job], index: int) -> int | None:
    """Find where the group of a job begins among the jobs; None if no other group is before it."""
    start = next(position for position, job in enumerate(jobs) if job.group is jobs[index].group and not job.trial.tied)
    return start if any(not job.trial.beside for job in jobs[:start]) else None


def describe_group(group: Group) -> str:
    """Describe a group in a few words: ``conv width=64 depth=2 batch 8``."""
    return f"{format_network(group.workload.name, group.factors)} batch {group.batch_size}"


def describe_round(groups: Sequence[Group], contended: float) -> str:
    """Describe what is measured: ``measuring resnet18, deit batch 8 side by side``."""
    if len(groups) == 1:
        text = f"measuring {describe_group(groups[0])}"
    else:
        names = [format_network(group.workload.name, group.factors) for group in groups]
        text = f"measuring {join_names(names, most=_MOST_NAMES)} batch {groups[0].batch_size} side by side"
    return f"{text}, {100 * contended:.0f} % of its turns contended" if contended > SPARED else text
