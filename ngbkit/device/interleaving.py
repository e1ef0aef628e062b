"""The rounds of a group: its lanes take turns until they have as many samples as asked, or are as precise as asked."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ngbkit.device.timing import intervals, rounds
from ngbkit.device.worker import Lane, LaneFailedError
from ngbkit.sweep.grid import Sweep
from ngbkit.sweep.records import Record
from ngbkit.sweep.trials import BASELINE

# Progress within a group is told at most this often.
_TELL_EVERY_S = 0.25


@dataclass(slots=True, kw_only=True)
class Rounds:
    """How the lanes of one group are timed.

    Parameters
    ----------
    sweep
        For how long, and in which order.
    first
        The number of the first round.
    lost
        Takes the record of a lane that failed.
    finished
        Takes the lanes that are done, and ends them.
    tell
        Takes how many rounds are done, and of how many that are expected.
    """

    sweep: Sweep
    first: int
    lost: Callable[[Sequence[Record]], None]
    finished: Callable[[Sequence[Lane]], None]
    tell: Callable[[int, int], None]

    def take(self, lanes: Sequence[Lane]) -> None:
        """Time the lanes against each other, round by round, and finish each."""
        active = list(lanes)
        fastest = min(lane.settled_call_s for lane in [one for one in lanes if not one.trial.beside] or lanes)
        precision = self.sweep.precision
        rule = None if precision is None else Rule(precision=precision, least=self.sweep.min_rounds)
        turns = None if self.sweep.repeats is None else self._plan(self.sweep.repeats, fastest)
        began, told = time.monotonic(), 0.0
        for number, samples in enumerate(rounds.turns_without_end(fastest) if turns is None else turns):
            if self._is_over(number, began):
                break
            if time.monotonic() - told > _TELL_EVERY_S:
                told = time.monotonic()
                self.tell(number, len(turns) if turns is not None else max(number + 1, rule.expected if rule else 0))
            for lane in rounds.shuffled(active, self.sweep.seed, number):
                try:
                    lane.turn(self.first + number, samples)
                except LaneFailedError as error:
                    active.remove(lane)
                    self.lost([error.failure])
            done = rule.done(active, number + 1) if rule is not None else []
            if done:
                self.finished(done)
                active = [lane for lane in active if lane not in done]
            if not active:
                return
        self.finished(active)

    def _plan(self, repeats: int, fastest_call_s: float) -> list[int]:
        return rounds.plan_turns(repeats, fastest_call_s, self.sweep.min_rounds)

    def _is_over(self, number: int, began: float) -> bool:
        most = self.sweep.max_seconds
        return most is not None and number >= self.sweep.min_rounds and time.monotonic() - began >= most


@dataclass(slots=True, kw_only=True)
class Rule:
    """When `--precision` is reached: the interval of a lane's ratio to the baseline, round by round, is that narrow.

    A lane on its own is held against itself: the interval of its median latency.

    Parameters
    ----------
    precision
        Half width of the 95 % interval, relative to the ratio.
    least
        Rounds before the first look.

    Attributes
    ----------
    expected
        How many rounds it will probably take, from what the last look saw.
    """

    precision: float
    least: int
    expected: int = 0
    _next: int = 0
    _looks: int = 0

    def __post_init__(self) -> None:
        self._next = self.expected = max(self.least, intervals.next_look(0))

    def done(self, active: Sequence[Lane], taken: int) -> list[Lane]:
        """The lanes that need no further round, after so many."""
        if taken < self._next or not active:
            return []
        self._looks += 1
        self._next = intervals.next_look(taken)
        reference = next((lane for lane in active if lane.trial.compiler == BASELINE), active[0])
        others = [lane for lane in active if lane is not reference and not lane.trial.beside]
        widths = {id(lane): self._half_width(lane, reference if others else lane) for lane in others or [reference]}
        for lane in active:
            lane.looks = self._looks
        worst = max(widths.values()) / self.precision
        self.expected = math.ceil(taken * worst**2) if 1 < worst < math.inf else taken
        left = [lane for lane in active if widths.get(id(lane), 0.0) > self.precision]
        # The reference goes on for as long as another does, and an anchor for as long as the reference.
        return [lane for lane in others if lane not in left] if left else list(active)

    def _half_width(self, lane: Lane, reference: Lane) -> float:
        own, base = lane.round_medians(), reference.round_medians()
        logs = np.log([own[number] for number in own if number in base])
        if lane is not reference:
            logs -= np.log([base[number] for number in own if number in base])
        width = float(intervals.half_width(logs, self._looks))
        return math.inf if math.isnan(width) else width
