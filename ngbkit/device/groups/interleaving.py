"""Interleaved rounds of a bundle: its workers alternate until they have the requested samples or precision."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from ngbkit.device.groups.stopping import StoppingRule, find_reference, split_by_network
from ngbkit.device.groups.worker import TrialFailedError, Worker
from ngbkit.device.timing import rounds
from ngbkit.device.timing.patience import SPARED, Patience
from ngbkit.options import get_patience
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.records import Record

# The minimum time between progress reports within a group.
_REPORT_PERIOD_S = 0.25
# The first look at the samples so far comes after this time and as many rounds; each later one after twice the time, so
# that what displays it hardly disturbs the turns.
_FIRST_LOOK_S, _LEAST_ROUNDS = 2.0, 10


@dataclass(slots=True, kw_only=True)
class Interleaving:
    """The interleaved timing of the workers of one bundle."""

    sweep: Grid
    # The number of the first round.
    first_round: int
    # Receives the record of a worker that failed.
    record_failure: Callable[[Sequence[Record]], None]
    # Receives the workers with enough samples, and ends them.
    finish: Callable[[Sequence[Worker]], None]
    # Receives the number of completed rounds, that of expected ones, and the share of turns that were contended.
    report: Callable[[int, int, float], None]
    # Receives the workers now and then, while they go on.
    look: Callable[[Sequence[Worker]], None]
    # The samples of each compiler in each round, before any round is repeated.
    planned: list[int] = field(default_factory=list, init=False)

    def run(self, workers: Sequence[Worker]) -> None:
        """Time the workers against each other, round by round, and finish each."""
        for _ in self.advance(workers):
            pass

    def advance(self, workers: Sequence[Worker]) -> Iterator[None]:
        """As `run`, one round at a time."""
        active = list(workers)
        timed = [worker for worker in workers if not worker.trial.beside] or workers
        fastest = min(worker.steady_call_s for worker in timed)
        rule = StoppingRule.of(self.sweep)
        factor = get_patience() if self.sweep.patience is None else self.sweep.patience
        patience = Patience(factor=factor, planned_s=0.0)
        start, last_report, look_s = time.monotonic(), 0.0, _FIRST_LOOK_S
        for number, samples in enumerate(self._yield_turns(fastest, active, patience)):
            if self._is_over(number, start):
                break
            if time.monotonic() - last_report > _REPORT_PERIOD_S:
                last_report = time.monotonic()
                expected = self._expect_rounds() if rule is None or rule.precision is None else rule.expected
                contended = sum(worker.contended_share for worker in active) / len(active)
                self.report(number, max(number + 1, expected), contended)
            for worker in rounds.shuffle(active, self.sweep.seed, number):
                try:
                    worker.time_turn(self.first_round + number, samples, patience)
                except TrialFailedError as error:
                    active.remove(worker)
                    self.record_failure([error.failure])
            finished = rule.select_finished(active, number + 1) if rule is not None else []
            finished += [worker for worker in active if worker.outgrown and worker not in finished]
            if finished:
                self.finish(finished)
                active[:] = [worker for worker in active if worker not in finished]
            if not active:
                return
            if number + 1 >= _LEAST_ROUNDS and (spent_s := time.monotonic() - start) >= look_s:
                look_s = 2 * spent_s
                self.look(active)
            yield
        self.finish(active)

    def _yield_turns(self, fastest_call_s: float, active: Sequence[Worker], patience: Patience) -> Iterator[int]:
        """Yield the samples of each round: the planned rounds, then as many rounds as disturbances have cost."""
        sweep = self.sweep
        choose = partial(self._choose_samples, fastest_call_s, active)
        for planned in rounds.plan_turns(sweep.repeats, fastest_call_s, sweep.min_rounds, choose):
            self.planned += planned
            patience.planned_s += sum(worker.estimate_turn_s(samples) for samples in planned for worker in active)
            yield from planned
        target = (1 - SPARED) * len(self.planned)
        samples = max(self.planned[-2:])  # the last round has what was left
        while patience.lasts and any(worker.count_rounds(self.first_round) < target for worker in active):
            # What a planned round takes is extra here, as what it takes beyond that always is.
            patience.extra_s += sum(worker.estimate_turn_s(samples) for worker in active)
            yield samples

    def _choose_samples(self, fastest_call_s: float, active: Sequence[Worker]) -> int:
        """Choose the samples of a turn by the noise of the rounds so far."""
        timed = [worker for worker in active if not worker.trial.beside] or active
        whole_s = sum(worker.estimate_turn_s(1) for worker in timed)
        untimed_s = sum(worker.estimate_turn_s(0) for worker in timed)
        pairs = [pair for workers in split_by_network(timed) for pair in _list_pairs(workers)]
        settling, least = untimed_s / (whole_s - untimed_s), rounds.count_least_samples(fastest_call_s)
        return rounds.choose_samples(pairs, settling, least)

    def _expect_rounds(self) -> int:
        """Expect the rounds in total: as if later turns were as long as the last that were planned."""
        left = (self.sweep.repeats or 0) - sum(self.planned)
        return len(self.planned) + math.ceil(left / self.planned[-1])

    def _is_over(self, number: int, start: float) -> bool:
        limit_s = self.sweep.max_seconds
        return limit_s is not None and number >= self.sweep.min_rounds and time.monotonic() - start >= limit_s


def _list_pairs(workers: Sequence[Worker]) -> list[tuple[rounds.Turns, rounds.Turns]]:
    """Pair each worker's turns of a network with its baseline's turns, or a single worker's turns with themselves."""
    reference = find_reference(workers)
    turns = reference.list_turns()
    others = [worker for worker in workers if worker is not reference]
    return [(worker.list_turns(), turns) for worker in others] or [(turns, turns)]
