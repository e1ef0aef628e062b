"""How long trials and sweeps are likely to take: by what earlier ones took."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from ngbkit import runs
from ngbkit.errors import NgbkitError
from ngbkit.runs.time_left import duration
from ngbkit.sweep.grid import Sweep
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Measurement, Record
from ngbkit.sweep.trials import Trial, facts_key

# So many of the latest runs are looked at, and so many trials of each.
_RUNS, _TRIALS = 8, 200
# What a trial takes beside compiling and timing: to start a process, and to check the outputs.
_BESIDE_S = 1.0
# Of a trial that is measured until its speed-up is known.
_SAMPLES = 50

Cost = tuple[float, float]
"""Seconds to compile, cold and warm; and seconds a sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A trial that was measured before, in some run.

    Parameters
    ----------
    trial
        What was measured.
    record
        What came of it.
    facts
        Of its network: parameters, macs and others.
    """

    trial: Trial
    record: Measurement
    facts: dict[str, float | None]


class Costs:
    """What trials take: those of a network and a compiler what such took, others what their compiler did.

    Parameters
    ----------
    several
        Trials with what came of them.
    """

    def __init__(self, several: Iterable[tuple[Trial, Record]] = ()) -> None:
        found: dict[tuple[str, str], list[Cost]] = {}
        for trial, record in several:
            if isinstance(record, Measurement):
                for key in ((trial.workload, trial.compiler), ("", trial.compiler)):
                    found.setdefault(key, []).append(_cost(record))
        self._usual = {key: _median(costs) for key, costs in found.items()}
        by_compiler = [cost for (workload, _), cost in self._usual.items() if not workload]
        self._anything = _median(by_compiler) if by_compiler else None

    def knows(self, compiler: str) -> bool:
        """Whether any trial of that compiler is known."""
        return ("", compiler) in self._usual

    def of(self, trial: Trial, repeats: int | None) -> float | None:
        """Seconds that a trial is likely to take, with so many samples or as many as it needs; None if none tells."""
        if self._anything is None:
            return None
        own = self._usual.get((trial.workload, trial.compiler), self._usual.get(("", trial.compiler), self._anything))
        return _BESIDE_S + own[0] + own[1] * (repeats or _SAMPLES)


def describe(sweep: Sweep, expected: float | None) -> str:
    """How many trials, in how many groups, and about how long where something tells.

    >>> describe(sweep, expected_s(sweep))  # doctest: +SKIP
    '24 trials in 8 groups, about 3 min 20 s'
    """
    groups = sum(1 for _ in sweep.groups())
    text = f"{_many(len(sweep), 'trial')} in {_many(groups, 'group')}"
    return f"{text}, about {duration(expected)}" if expected is not None else f"{text}; no earlier run tells how long"


def expected_s(sweep: Sweep, costs: Costs | None = None) -> float | None:
    """Seconds that a sweep is likely to take, by what trials took in the latest runs; None where none tells.

    A trial costs what those of its network and compiler cost, or else those of its compiler, in the median. Devices
    measure side by side: the one with the most to do counts.
    """
    known = Costs((one.trial, one.record) for one in earlier()) if costs is None else costs
    if not any(map(known.knows, sweep.compilers)):
        return None
    took = dict.fromkeys(sweep.devices, 0.0)
    for trial in sweep.trials():
        took[trial.device] += known.of(trial, sweep.repeats) or 0.0
    return max(took.values())


def earlier() -> Iterator[Seen]:
    """Trials of the latest runs, the latest run first."""
    for summary in islice(runs.summaries(), _RUNS):
        trials = {trial.id: trial for trial in summary.sweep.trials()}
        try:
            with Journal(runs.find(summary.id) / "journal.sqlite", writable=False) as journal:
                found = list(islice(journal.records(), _TRIALS))
                facts = journal.notes("facts")
        except NgbkitError:
            continue
        for record in found:
            trial = trials.get(record.trial_id)
            if trial is not None and isinstance(record, Measurement):
                key = facts_key(trial.workload, dict(trial.factors))
                yield Seen(trial=trial, record=record, facts=facts.get(key, {}))


def _cost(record: Measurement) -> Cost:
    compiling = record.compile_time_s + (record.compile_time_warm_s or 0.0) + record.first_call_time_s
    calls = record.calls_per_sample
    return compiling, statistics.fmean(record.latency_s) * calls


def _median(costs: list[Cost]) -> Cost:
    return statistics.median(one for one, _ in costs), statistics.median(one for _, one in costs)


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
