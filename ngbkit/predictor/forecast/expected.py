"""Estimates the duration of trials and sweeps from earlier runs."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from ngbkit import runs
from ngbkit.cluster import machines
from ngbkit.errors import NgbkitError
from ngbkit.runs.time_left import format_duration
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Measurement, Record
from ngbkit.sweep.trials import Trial, facts_key

# The number of latest runs that are read, and of trials of each.
_RUNS, _TRIALS = 8, 200
# The overhead of a trial: to start a process, and to check the outputs.
_OVERHEAD_S = 1.0
# The usual number of samples of a trial that is measured until its speed-up is known.
_SAMPLES = 50

Cost = tuple[float, float]
"""Seconds to compile, cold and warm; and seconds a sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierTrial:
    """A measured trial of some run, with the facts of its network: parameters, MACs and others."""

    trial: Trial
    record: Measurement
    facts: dict[str, float | None]


class Costs:
    """Expected seconds of trials, from measured trials of the same network and compiler, else of the same compiler."""

    def __init__(self, trials: Iterable[tuple[Trial, Record]] = ()) -> None:
        costs: dict[tuple[str, str], list[Cost]] = {}
        for trial, record in trials:
            if isinstance(record, Measurement):
                for key in ((trial.workload, trial.compiler), ("", trial.compiler)):
                    costs.setdefault(key, []).append(_compute_cost(record))
        self._usual = {key: _compute_median(group) for key, group in costs.items()}
        by_compiler = [cost for (workload, _), cost in self._usual.items() if not workload]
        self._anything = _compute_median(by_compiler) if by_compiler else None

    def knows(self, compiler: str) -> bool:
        """Whether any trial of that compiler was measured."""
        return ("", compiler) in self._usual

    def estimate_s(self, trial: Trial, repeats: int | None) -> float | None:
        """Return the expected seconds of a trial with `repeats` samples (None: the usual number); None without
        measurements.
        """
        if self._anything is None:
            return None
        cost = self._usual.get((trial.workload, trial.compiler), self._usual.get(("", trial.compiler), self._anything))
        return _OVERHEAD_S + cost[0] + cost[1] * (repeats or _SAMPLES)


def describe(sweep: Grid, expected: float | None) -> str:
    """Return the number of trials and groups, and the expected duration where it is known.

    >>> describe(sweep, estimate_seconds(sweep))  # doctest: +SKIP
    '24 trials in 8 groups, about 3 min 20 s'
    """
    groups = sum(1 for _ in sweep.groups())
    text = f"{_format_count(len(sweep), 'trial')} in {_format_count(groups, 'group')}"
    if expected is None:
        return f"{text}; the duration is unknown without an earlier run"
    # Where a race ends is not known before.
    return f"{text}, {'at most' if sweep.race else 'about'} {format_duration(expected)}"


def estimate_seconds(sweep: Grid, costs: Costs | None = None) -> float | None:
    """Return the expected seconds of a sweep, from the latest runs; None if they measured none of its compilers.

    Devices measure in parallel, so that the slowest counts; those that share cores of a machine measure in turn.
    """
    costs = costs or Costs((earlier.trial, earlier.record) for earlier in load_earlier_trials())
    if not any(map(costs.knows, sweep.compilers)):
        return None
    seconds = dict.fromkeys(sweep.devices, 0.0)
    for trial in sweep.trials():
        seconds[trial.device] += costs.estimate_s(trial, sweep.repeats) or 0.0
    return max(sum(seconds[label] for label in turns) for turns in machines.group_by_cores(sweep.devices))


def load_earlier_trials(except_run: str | None = None) -> Iterator[EarlierTrial]:
    """Yield the trials of the latest runs, the latest run first, but for the run with that id."""
    summaries = (summary for summary in runs.summaries() if summary.id != except_run)
    for summary in islice(summaries, _RUNS):
        trials = {trial.id: trial for trial in summary.sweep.trials()}
        try:
            with Journal(runs.find(summary.id) / "journal.sqlite", writable=False) as journal:
                records = list(islice(journal.records(), _TRIALS))
                facts = journal.notes("facts")
        except NgbkitError:
            continue
        for record in records:
            trial = trials.get(record.trial_id)
            if trial is not None and isinstance(record, Measurement):
                key = facts_key(trial.workload, dict(trial.factors))
                yield EarlierTrial(trial=trial, record=record, facts=facts.get(key, {}))


def _compute_cost(record: Measurement) -> Cost:
    compiling = record.compile_time_s + (record.compile_time_warm_s or 0.0) + record.first_call_time_s
    # With the untimed calls, which may be as many as the timed ones; earlier records have no such fact.
    called_s = record.facts.get("called_s")
    if isinstance(called_s, (int, float)) and called_s > 0:
        return compiling, called_s / len(record.latency_s)
    return compiling, statistics.fmean(record.latency_s) * record.calls_per_sample


def _compute_median(costs: list[Cost]) -> Cost:
    return statistics.median(once for once, _ in costs), statistics.median(sample for _, sample in costs)


def _format_count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
