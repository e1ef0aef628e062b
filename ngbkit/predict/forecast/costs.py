"""The expected seconds of trials, from those that were measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ngbkit.sweep.records import Measurement
from ngbkit.sweep.trials import Trial

# The overhead of a trial: to start a process, and to check the outputs.
_OVERHEAD_S = 1.0
# The usual number of samples of a trial that is measured until its speed-up is known.
_SAMPLES = 50


class Cost(NamedTuple):
    """The seconds that a trial took: to compile it, cold and warm, with its first call; and for each sample."""

    compiling_s: float
    sample_s: float


class Costs:
    """Expected seconds of trials, from measured trials of the same network and compiler, else of the same compiler."""

    def __init__(self, trials: Iterable[tuple[Trial, Cost]] = ()) -> None:
        costs: dict[tuple[str, str], list[Cost]] = {}
        for trial, cost in trials:
            for key in ((trial.workload, trial.compiler), ("", trial.compiler)):
                costs.setdefault(key, []).append(cost)
        self._usual = {key: _compute_median(group) for key, group in costs.items()}
        by_compiler = [cost for (workload, _), cost in self._usual.items() if not workload]
        self._anything = _compute_median(by_compiler) if by_compiler else None

    def knows(self, compiler: str) -> bool:
        """Return whether any trial of that compiler was measured."""
        return ("", compiler) in self._usual

    def estimate_s(self, trial: Trial, repeats: int | None) -> float | None:
        """Return the expected seconds of a trial with `repeats` samples (None: the usual number); None without
        measurements.
        """
        if self._anything is None:
            return None
        cost = self._usual.get((trial.workload, trial.compiler), self._usual.get(("", trial.compiler), self._anything))
        return _OVERHEAD_S + cost.compiling_s + cost.sample_s * (repeats or _SAMPLES)


def compute_cost(record: Measurement) -> Cost:
    """Return the cost of a measured trial."""
    compiling_s = record.compile_time_s + (record.compile_time_warm_s or 0.0) + record.first_call_time_s
    timed_s = statistics.fmean(record.latency_s) * record.calls_per_sample
    return Cost(compiling_s, compute_sample_s(record.facts, len(record.latency_s)) or timed_s)


def compute_sample_s(facts: Mapping[str, Any], samples: int) -> float | None:
    """Return the seconds of a sample with the untimed calls, which may be as many; None if they are unknown."""
    called_s = facts.get("called_s")
    return called_s / samples if isinstance(called_s, (int, float)) and called_s > 0 else None


def _compute_median(costs: list[Cost]) -> Cost:
    return Cost(*map(statistics.median, zip(*costs, strict=True)))
