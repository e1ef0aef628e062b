"""How long a sweep is likely to take: by what earlier runs took."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from itertools import islice

from ngbkit import runs
from ngbkit.clock import duration
from ngbkit.errors import NgbkitError
from ngbkit.journal import Journal
from ngbkit.records import Measurement
from ngbkit.sweep import Sweep

# So many of the latest runs are looked at, and so many trials of each.
_RUNS, _TRIALS = 8, 200
# What a trial takes beside compiling and timing: to start a process, and to check the outputs.
_BESIDE_S = 1.0
# Of a trial that is measured until its speed-up is known.
_SAMPLES = 50

Cost = tuple[float, float]
"""Seconds to compile, cold and warm; and seconds a sample."""


def describe(sweep: Sweep) -> str:
    """How many trials, in how many groups, and about how long.

    >>> describe(sweep)  # doctest: +SKIP
    '24 trials in 8 groups, about 3 min 20 s'
    """
    groups = sum(1 for _ in sweep.groups())
    text = f"{_many(len(sweep), 'trial')} in {_many(groups, 'group')}"
    expected = expected_s(sweep)
    return f"{text}, about {duration(expected)}" if expected is not None else f"{text}; no earlier run tells how long"


def expected_s(sweep: Sweep) -> float | None:
    """Seconds that a sweep is likely to take, by what trials took in the latest runs; None where none tells.

    A trial costs what those of its network and compiler cost, or else those of its compiler, in the median. Devices
    measure side by side: the one with the most to do counts.
    """
    costs: dict[tuple[str, str], list[Cost]] = {}
    for workload, compiler, cost in _costs():
        for key in ((workload, compiler), ("", compiler)):
            costs.setdefault(key, []).append(cost)
    usual = {key: _usual(found) for key, found in costs.items()}
    by_compiler = [cost for (workload, _), cost in usual.items() if not workload]
    if not any(("", compiler) in usual for compiler in sweep.compilers):
        return None
    anything = _usual(by_compiler)
    samples = sweep.repeats or _SAMPLES
    took = dict.fromkeys(sweep.devices, 0.0)
    for trial in sweep.trials():
        known = usual.get((trial.workload, trial.compiler), usual.get(("", trial.compiler), anything))
        took[trial.device] += _BESIDE_S + known[0] + known[1] * samples
    return max(took.values())


def _costs() -> Iterator[tuple[str, str, Cost]]:
    for summary in islice(runs.summaries(), _RUNS):
        trials = {trial.id: trial for trial in summary.sweep.trials()}
        try:
            with Journal(runs.find(summary.id) / "journal.sqlite", writable=False) as journal:
                found = list(islice(journal.records(), _TRIALS))
        except NgbkitError:
            continue
        for record in found:
            trial = trials.get(record.trial_id)
            if trial is not None and isinstance(record, Measurement):
                yield trial.workload, trial.compiler, _cost(record)


def _cost(record: Measurement) -> Cost:
    compiling = record.compile_time_s + (record.compile_time_warm_s or 0.0) + record.first_call_time_s
    calls = record.calls_per_sample
    return compiling, statistics.fmean(record.latency_s) * calls


def _usual(costs: list[Cost]) -> Cost:
    return statistics.median(one for one, _ in costs), statistics.median(one for _, one in costs)


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
