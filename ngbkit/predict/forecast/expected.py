"""Estimates the duration of sweeps from earlier runs."""

from __future__ import annotations

from ngbkit.cluster import machines
from ngbkit.predict.forecast.costs import Costs
from ngbkit.predict.forecast.earlier import load_earlier_trials
from ngbkit.sweep.grid import Grid
from ngbkit.user_text import format_count, format_duration


def describe_duration(sweep: Grid) -> str:
    """Return the number of trials and groups, and the duration that the latest runs let expect."""
    return describe(sweep, estimate_seconds(sweep))


def describe(sweep: Grid, expected: float | None) -> str:
    """Return the number of trials and groups, and the expected duration where it is known.

    >>> describe(sweep, estimate_seconds(sweep))  # doctest: +SKIP
    '24 trials in 8 groups, about 3 min 20 s'
    """
    groups = sum(1 for _ in sweep.groups())
    text = f"{format_count(len(sweep), 'trial')} in {format_count(groups, 'group')}"
    if expected is None:
        return f"{text}; the duration is unknown without an earlier run"
    # Where a race ends is not known before.
    return f"{text}, {'at most' if sweep.race else 'about'} {format_duration(expected)}"


def estimate_seconds(sweep: Grid, costs: Costs | None = None) -> float | None:
    """Return the expected seconds of a sweep's slowest device, from the latest runs; None if these tell nothing."""
    costs = costs or Costs((earlier.trial, earlier.cost) for earlier in load_earlier_trials())
    if not any(map(costs.knows, sweep.compilers)):
        return None
    seconds = dict.fromkeys(sweep.devices, 0.0)
    for trial in sweep.trials():
        seconds[trial.device] += costs.estimate_s(trial, sweep.repeats) or 0.0
    return max(sum(seconds[label] for label in turns) for turns in machines.group_by_cores(sweep.devices))
