"""Ends a worker's turns before the others': its ratio is precise enough, or it has lost the race."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ngbkit.device.groups.worker import Worker
from ngbkit.device.timing import correlation, intervals
from ngbkit.device.timing.correlation import Floats
from ngbkit.sweep.column import BASELINE
from ngbkit.sweep.grid import Grid


@dataclass(slots=True, kw_only=True)
class StoppingRule:
    """Looks at the rounds so far, now and then, and selects the workers that need no further one.

    With a precision, a worker ends once the interval of its ratio to the reference, round by round, is as narrow. The
    reference is the baseline of its network; a single worker has none, and its interval is that of its median latency.

    In a race, a worker also ends once it is surely slower than the fastest so far, which is then the reference of the
    rest: the rounds go to what may still win (Maron and Moore, 1994, "Hoeffding Races").
    """

    # Half width of the 95 % interval, relative to the ratio; None if the sweep says how many samples there are.
    precision: float | None
    race: bool
    # Rounds before the first look.
    min_rounds: int
    # An estimate, from the last look, of the rounds in total.
    expected: int = 0
    _next: int = 0
    _looks: int = 0
    # Whether one has lost the race; before, a single worker is no winner.
    _has_loser: bool = False

    def __post_init__(self) -> None:
        self._next = self.expected = max(self.min_rounds, intervals.schedule_next_look(0))

    @classmethod
    def of(cls, sweep: Grid) -> StoppingRule | None:
        """Build the rule of a sweep, if it has one."""
        race = bool(sweep.race)
        if sweep.precision is None and not race:
            return None
        return cls(precision=sweep.precision, race=race, min_rounds=sweep.min_rounds)

    def select_finished(self, active: Sequence[Worker], round_count: int) -> list[Worker]:
        """Select the workers that need no further round after that many."""
        if round_count < self._next or not active:
            return []
        self._looks += 1
        self._next = intervals.schedule_next_look(round_count)
        for worker in active:
            worker.looks = self._looks
        finished = self._select_slower(active) if self.race else []
        finished += self._select_precise([worker for worker in active if worker not in finished], round_count)
        # An anchor without its own network continues as long as any other worker.
        rest = [worker for worker in active if worker not in finished]
        return list(active) if all(worker.trial.beside for worker in rest) else finished

    def _select_slower(self, active: Sequence[Worker]) -> list[Worker]:
        """Select the workers that have lost the race, and the one that has won it."""
        timed = [worker for worker in active if not worker.trial.beside]
        if not timed:
            return []
        fastest = _find_fastest(timed)
        logs = {id(worker): _compute_logs(worker, fastest) for worker in timed if worker is not fastest}
        pool = correlation.pool_series([*logs.values()])
        slower = [worker for worker in timed if id(worker) in logs and _is_slower(logs[id(worker)], pool)]
        self._has_loser = self._has_loser or bool(slower)
        return timed if self._has_loser and len(slower) == len(timed) - 1 else slower

    def _select_precise(self, active: Sequence[Worker], round_count: int) -> list[Worker]:
        """Select the workers whose ratios are precise, and expect the rounds that the others need."""
        if self.precision is None or not active:
            return []
        networks = [list(active)] if self.race else split_by_network(active)
        timed = [workers for workers in networks if not all(worker.trial.beside for worker in workers)]
        selections = [self._select_precise_of(workers) for workers in timed or [list(active)]]
        worst = max(width for _, width in selections) / self.precision
        self.expected = math.ceil(round_count * worst**2) if 1 < worst < math.inf else round_count
        return [worker for workers, _ in selections for worker in workers]

    def _select_precise_of(self, active: Sequence[Worker]) -> tuple[list[Worker], float]:
        """Select the workers that are compared with one reference and precise; and the widest of their intervals."""
        timed = [worker for worker in active if not worker.trial.beside]
        reference = _find_fastest(timed) if self.race and timed else find_reference(active)
        others = [worker for worker in active if worker is not reference and not worker.trial.beside]
        logs = {id(worker): _compute_logs(worker, reference if others else worker) for worker in others or [reference]}
        pool = correlation.pool_series([*logs.values()])
        widths = {key: self._compute_half_width(values, pool) for key, values in logs.items()}
        imprecise = [worker for worker in active if widths.get(id(worker), 0.0) > (self.precision or 0.0)]
        # The reference continues as long as any other worker, and an anchor as long as the reference.
        finished = [worker for worker in others if worker not in imprecise] if imprecise else list(active)
        return finished, max(widths.values())

    def _compute_half_width(self, logs: Floats, pool: Floats) -> float:
        width = float(intervals.compute_half_width(logs, self._looks, pool))
        return math.inf if math.isnan(width) else width


def split_by_network(workers: Sequence[Worker]) -> list[list[Worker]]:
    """Split workers by network, in their order."""
    networks: dict[tuple[object, ...], list[Worker]] = {}
    for worker in workers:
        networks.setdefault((worker.trial.workload, worker.trial.factors), []).append(worker)
    return list(networks.values())


def find_reference(workers: Sequence[Worker]) -> Worker:
    """Find the worker of the baseline, or the first one."""
    return next((worker for worker in workers if worker.trial.compiler == BASELINE), workers[0])


def _find_fastest(workers: Sequence[Worker]) -> Worker:
    """Find the worker with the lowest median over the rounds that all have; the first one without any."""
    medians = [worker.compute_round_medians() for worker in workers]
    shared = set(medians[0]).intersection(*medians[1:])
    latency = [np.median([column[number] for number in shared]) if shared else 0.0 for column in medians]
    return workers[int(np.argmin(latency))]


def _is_slower(logs: Floats, pool: Floats) -> bool:
    low, _ = intervals.compute_race_interval(logs, pool)
    return bool(low > 0)  # NaN, with too few rounds, is not


def _compute_logs(worker: Worker, reference: Worker) -> Floats:
    """Compute the logarithms of the latency of a worker, over the reference's unless it is the reference, by round."""
    medians, baseline = worker.compute_round_medians(), reference.compute_round_medians()
    shared = [number for number in medians if number in baseline]
    logs = np.log([medians[number] for number in shared])
    return logs if worker is reference else logs - np.log([baseline[number] for number in shared])
