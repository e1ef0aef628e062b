"""Estimates how long the rest of a run takes."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ngbkit.sweep.trials import Trial
from ngbkit.workloads.base import FactorValue

Network = tuple[str, tuple[tuple[str, FactorValue], ...]]
"""The name of a network, and its factors."""
_TimesBySize = dict[int, float]
"""The seconds that the rounds of a trial took, by batch size."""
# An estimate between bounds further apart than this says nothing.
_MOST_APART = 2.0
# How much of a time the noise of a machine may be.
_NOISE = 0.1


@dataclass(slots=True)
class _Rate:
    """The time that some work took, and how much of it was done."""

    seconds: float = 0.0
    units: float = 0.0

    def compute_s(self, units: float, usual: _Rate) -> float | None:
        """Compute the seconds for more of it, from the usual rate if none is done; None if that is unknown too."""
        rate = self if self.units > 0 else usual
        if not units:
            return 0.0
        return rate.seconds / rate.units * units if rate.units > 0 else None


class TimeLeft:
    """Estimates the time left for `trials`, of which those in `finished` are recorded, from the time of what is done.

    The time between two events belongs to what the earlier one began. A network is prepared once, a trial compiled
    once, and measured in rounds: the rest takes as long as that work took so far, of the same compiler, and of the same
    network and batch size if possible.
    """

    def __init__(self, trials: Mapping[str, Trial], finished: Collection[str]) -> None:
        self._trials = trials
        self._open = {trial_id for trial_id in trials if trial_id not in finished}
        self._compiled: set[str] = set()
        self._shares: dict[str, float] = {}  # of the rounds of a trial
        self._networks: set[Network] = set()  # prepared
        self._starting, self._preparing = _Rate(), _Rate()
        self._compiling: dict[str, _Rate] = {}  # by compiler
        self._measuring: dict[tuple[str, int], _Rate] = {}  # by network and batch size, a unit all rounds of a trial
        self._current: _Rate | None = self._starting  # what takes the time from the latest event on
        self._updated_s = time.monotonic()
        self._trial_id = ""  # that is being compiled

    def prepare(self) -> None:
        """Begin to prepare a network."""
        self._switch(self._preparing)

    def compile(self, trial_id: str) -> None:
        """Begin to compile a trial; an anchor, which is no trial of the sweep, belongs to the trial before it."""
        if trial_id in self._trials:
            trial = self._trials[trial_id]
            self._switch(self._compiling.setdefault(trial.compiler, _Rate()))
            self._count_network(trial)
            self._compiled.discard(trial_id)
            self._trial_id = trial_id

    def advance(self, trial_ids: Iterable[str], share: float) -> None:
        """Set which share (0 to 1) of their rounds the trials that are being measured have completed."""
        trials = {name: self._trials[name] for name in trial_ids if name in self._trials}
        if not trials:
            return
        # Networks that take turns share their time.
        rate = self._measuring.setdefault(_get_place(next(iter(trials.values()))), _Rate())
        for trial in trials.values():
            self._measuring.setdefault(_get_place(trial), rate)
        self._switch(rate)
        for name in trials:
            self._count_rounds(name, share)

    def finish(self, trial_id: str) -> None:
        """Count a trial as recorded."""
        if trial_id in self._shares:
            self._switch(self._current)
            self._count_rounds(trial_id, 1.0)
        elif trial_id == self._trial_id:
            self._switch(None)
        self._count_network(self._trials[trial_id])
        self._open.discard(trial_id)
        if not self._trial_id and not self._open & self._shares.keys():
            self._switch(None)

    @property
    def seconds(self) -> dict[str, float]:
        """The seconds that each step has taken."""
        measuring = {id(rate): rate for rate in self._measuring.values()}
        steps: dict[str, Iterable[_Rate]] = {
            "starting": [self._starting],
            "preparing": [self._preparing],
            "compiling": self._compiling.values(),
            "measuring": measuring.values(),
        }
        return {name: _sum(rates).seconds for name, rates in steps.items()}

    @property
    def share(self) -> float:
        """The share of the work that is done: a trial is compiled, and measured in rounds."""
        steps = 2 * (len(self._trials) - len(self._open)) + sum(
            (name in self._compiled) + self._shares.get(name, 0.0) for name in self._open
        )
        return steps / (2 * len(self._trials)) if self._trials else 1.0

    def estimate_s(self) -> float | None:
        """Estimate the seconds until the end; None until that is known to within a factor."""
        if not self._open:
            return 0.0
        usual = _sum(self._compiling.values())
        left = [self._trials[name] for name in self._open if name not in self._compiled]
        steps = [
            *(self._compiling.get(trial.compiler, usual).compute_s(1, usual) for trial in left),
            self._preparing.compute_s(len({*map(_get_network, left)} - self._networks), self._preparing),
        ]
        bounds = self._bound_rounds_s()
        if bounds is None or None in steps:
            return None
        low, high = (sum(seconds or 0.0 for seconds in steps) + bound for bound in bounds)
        if high > _MOST_APART * low:
            return None
        under_way_s = 0.0 if self._current is None else time.monotonic() - self._updated_s
        if self._current is self._preparing or self._trial_id:
            # A step that takes longer than expected leaves the rest as it was.
            rate = self._preparing if self._current is self._preparing else usual
            under_way_s = min(under_way_s, self._current.compute_s(1, rate) or 0.0) if self._current else 0.0
        return max(0.0, math.sqrt(low * high) - under_way_s)

    def _bound_rounds_s(self) -> tuple[float, float] | None:
        """Bound the seconds of the rounds that are left; None until some of a network are done."""
        left: dict[tuple[str, int], float] = {}
        for name in self._open:
            place = _get_place(self._trials[name])
            left[place] = left.get(place, 0.0) + 1.0 - self._shares.get(name, 0.0)
        times: dict[str, _TimesBySize] = {}
        for (workload, size), rate in self._measuring.items():
            if rate.units > 0:
                times.setdefault(workload, {})[size] = rate.seconds / rate.units
        if not times:
            return None
        low = high = 0.0
        for (workload, size), units in left.items():
            bounds = _bound_s(times.get(workload) or _average(times.values()), size, times.values())
            low, high = low + units * bounds[0], high + units * bounds[1]
        return low, high

    def _count_network(self, trial: Trial) -> None:
        if _get_network(trial) not in self._networks:
            self._networks.add(_get_network(trial))
            self._preparing.units += 1

    def _count_rounds(self, trial_id: str, share: float) -> None:
        trial = self._trials[trial_id]
        # Less than before: after a crash of the engine the group begins again.
        done = max(0.0, share - self._shares.get(trial_id, 0.0))
        self._measuring[_get_place(trial)].units += done
        self._shares[trial_id] = share

    def _switch(self, rate: _Rate | None) -> None:
        """Add the time since the latest event to what it began, and begin another."""
        now_s = time.monotonic()
        if self._current is not None:
            self._current.seconds += now_s - self._updated_s
        if self._trial_id:
            self._compiling[self._trials[self._trial_id].compiler].units += 1
            self._compiled.add(self._trial_id)
            self._trial_id = ""
        self._current, self._updated_s = rate, now_s


def _get_network(trial: Trial) -> Network:
    return trial.workload, trial.factors


def _get_place(trial: Trial) -> tuple[str, int]:
    return trial.workload, trial.batch_size


def _bound_s(times: _TimesBySize, size: int, others: Collection[_TimesBySize]) -> tuple[float, float]:
    """Bound the seconds of a trial by those of the same network at other batch sizes, and by how others grow.

    A call takes a time of its own and one for each sample: of the first alone it takes as long as at another batch
    size, and of the second alone it grows as the batch size does. Two batch sizes tell both, as far as noise lets them.
    """
    if size in times:
        return times[size], times[size]
    nearest, *further = sorted(times, key=lambda measured: abs(math.log(measured / size)))
    growths = [other[size] / other[nearest] for other in others if size in other and other.get(nearest)]
    if growths:
        seconds = times[nearest] * sum(growths) / len(growths)
        return seconds, seconds
    low, high = sorted((times[nearest], times[nearest] * size / nearest))
    if further:
        steps = (size - nearest) / (nearest - further[0])
        seconds = times[nearest] + steps * (times[nearest] - times[further[0]])
        noise = _NOISE * times[nearest] * abs(steps)
        low, high = max(low, min(high, seconds - noise)), min(high, max(low, seconds + noise))
    return low, high


def _average(times: Iterable[_TimesBySize]) -> _TimesBySize:
    """Average the seconds of all networks, for one that is not measured yet."""
    by_size: dict[int, list[float]] = {}
    for size, seconds in (item for network in times for item in network.items()):
        by_size.setdefault(size, []).append(seconds)
    return {size: sum(seconds) / len(seconds) for size, seconds in by_size.items()}


def _sum(rates: Iterable[_Rate]) -> _Rate:
    total = _Rate()
    for rate in rates:
        total.seconds, total.units = total.seconds + rate.seconds, total.units + rate.units
    return total


def format_duration(seconds: float) -> str:
    """Format a time in its two largest units.

    >>> format_duration(80.2)
    '1 min 20 s'
    """
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60} s"
    return f"{total // 3600} h {total % 3600 // 60} min"


def format_age(seconds: float) -> str:
    """Format the time since a moment in its largest unit.

    >>> format_age(200)
    '3 min ago'
    """
    total = max(round(seconds), 0)
    sizes = ((172_800, 86_400, "d"), (3600, 3600, "h"), (60, 60, "min"))
    size, unit = next(((size, unit) for least, size, unit in sizes if total >= least), (1, "s"))
    return f"{total // size} {unit} ago"


def describe_search(event: Mapping[str, Any]) -> str:
    """Describe how far a compiler's search for fast code is."""
    text = f"{event['text']}, {event['done']} of {event['total']} candidates"
    if event["best_s"] is not None:
        text += f", best {event['best_s'] * 1e3:.3g} ms"
    if event["left_s"] is not None:
        text += f", about {format_duration(event['left_s'])} left"
    return text
