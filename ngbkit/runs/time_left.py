"""Estimates how long the rest of a run takes."""

from __future__ import annotations

import math
import time
from bisect import bisect
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ngbkit.sweep.trials import Trial
from ngbkit.user_text import format_duration, format_seconds
from ngbkit.workloads.base import FactorValue

Network = tuple[str, tuple[tuple[str, FactorValue], ...]]
"""The name of a network, and its factors."""
Place = tuple[str, int]
"""The name of a network, and a batch size."""
_TimesBySize = dict[int, float]
"""The seconds that the rounds of a trial took, by batch size."""
# An estimate between bounds further apart than this says nothing.
_MOST_APART = 2.0
# How much of a time the noise of a machine may be.
_NOISE = 0.1


@dataclass(slots=True)
class _Rate:
    """The time that some work of a step took, and how much of it was done."""

    step: str
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
        # Counts of open trials, since a display estimates five times a second, of perhaps 20,000 trials.
        self._waiting = Counter(trials[trial_id].compiler for trial_id in self._open)  # that are not compiled
        self._places = Counter(_get_place(trials[trial_id]) for trial_id in self._open)
        self._networks: set[Network] = set()  # prepared
        self._unprepared = {_get_network(trials[trial_id]) for trial_id in self._open}
        self._compiled: set[str] = set()  # open ones, of which those in rounds have begun to be measured
        self._in_rounds: set[str] = set()
        self._shares: dict[str, float] = {}  # of the rounds of a trial
        self._starting, self._preparing = _Rate("starting"), _Rate("preparing")
        self._compiling: dict[str, _Rate] = {}  # by compiler
        self._measuring: dict[Place, _Rate] = {}  # a unit is all rounds of a trial
        self._current: _Rate | None = self._starting  # what takes the time from the latest event on
        self._updated_s = time.monotonic()
        self._trial_id = ""  # that is being compiled
        #: The seconds that each step has taken.
        self.seconds = dict.fromkeys(("starting", "preparing", "compiling", "measuring"), 0.0)

    def prepare(self) -> None:
        """Begin to prepare a network."""
        self._switch(self._preparing)

    def compile(self, trial_id: str) -> None:
        """Begin to compile a trial; an anchor, which is no trial of the sweep, belongs to the trial before it."""
        if trial_id in self._trials:
            trial = self._trials[trial_id]
            self._switch(self._compiling.setdefault(trial.compiler, _Rate("compiling")))
            self._count_network(trial)
            if trial_id in self._compiled:
                self._compiled.discard(trial_id)
                self._waiting[trial.compiler] += 1
            self._trial_id = trial_id

    def advance(self, trial_ids: Iterable[str], share: float) -> None:
        """Set which share (0 to 1) of their rounds the trials that are being measured have completed."""
        trials = {name: self._trials[name] for name in trial_ids if name in self._trials}
        if not trials:
            return
        # Networks that take turns share their time.
        rate = self._measuring.setdefault(_get_place(next(iter(trials.values()))), _Rate("measuring"))
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
        trial = self._trials[trial_id]
        self._count_network(trial)
        if trial_id in self._open:
            self._open.discard(trial_id)
            self._in_rounds.discard(trial_id)
            self._places[_get_place(trial)] -= 1
            if trial_id in self._compiled:
                self._compiled.discard(trial_id)
            else:
                self._waiting[trial.compiler] -= 1
        if not self._trial_id and not self._in_rounds:
            self._switch(None)

    @property
    def share(self) -> float:
        """The share of the work that is done: a trial is compiled, and measured in rounds."""
        under_way = len(self._compiled) + sum(map(self._shares.__getitem__, self._in_rounds))
        steps = 2 * (len(self._trials) - len(self._open)) + under_way
        return steps / (2 * len(self._trials)) if self._trials else 1.0

    def estimate_s(self) -> float | None:
        """Estimate the seconds until the end; None until that is known to within a factor."""
        if not self._open:
            return 0.0
        usual = _sum(self._compiling.values())
        steps = [
            *(self._compiling.get(name, usual).compute_s(count, usual) for name, count in self._waiting.items()),
            self._preparing.compute_s(len(self._unprepared), self._preparing),
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
        times: dict[str, _TimesBySize] = {}
        for (workload, size), rate in self._measuring.items():
            if rate.units > 0:
                times.setdefault(workload, {})[size] = rate.seconds / rate.units
        if not times:
            return None
        done = Counter[Place]()
        for name in self._in_rounds:
            done[_get_place(self._trials[name])] += self._shares[name]  # type: ignore[assignment]
        growths = _Growths(times.values())
        low = high = 0.0
        for place, count in self._places.items():
            if count:
                bounds = growths.bound_s(times.get(place[0]), place[1])
                units = count - done[place]
                low, high = low + units * bounds[0], high + units * bounds[1]
        return low, high

    def _count_network(self, trial: Trial) -> None:
        network = _get_network(trial)
        self._unprepared.discard(network)
        if network not in self._networks:
            self._networks.add(network)
            self._preparing.units += 1

    def _count_rounds(self, trial_id: str, share: float) -> None:
        trial = self._trials[trial_id]
        # Less than before: after a crash of the engine the group begins again.
        done = max(0.0, share - self._shares.get(trial_id, 0.0))
        self._measuring[_get_place(trial)].units += done
        self._shares[trial_id] = share
        if trial_id in self._open:
            self._in_rounds.add(trial_id)

    def _switch(self, rate: _Rate | None) -> None:
        """Add the time since the latest event to what it began, and begin another."""
        now_s = time.monotonic()
        if self._current is not None:
            self._current.seconds += now_s - self._updated_s
            self.seconds[self._current.step] += now_s - self._updated_s
        if self._trial_id:
            compiler = self._trials[self._trial_id].compiler
            self._compiling[compiler].units += 1
            if self._trial_id in self._open:
                self._compiled.add(self._trial_id)
                self._waiting[compiler] -= 1
            self._trial_id = ""
        self._current, self._updated_s = rate, now_s


def _get_network(trial: Trial) -> Network:
    return trial.workload, trial.factors


def _get_place(trial: Trial) -> Place:
    return trial.workload, trial.batch_size


class _Growths:
    """Bounds the seconds of a trial by those of the same network at other batch sizes, and by how others grow.

    A call takes a time of its own and one for each sample: of the first alone it takes as long as at another batch
    size, and of the second alone it grows as the batch size does. Two batch sizes tell both, as far as noise lets them.
    """

    def __init__(self, networks: Collection[_TimesBySize]) -> None:
        self._networks = networks
        self._sizes = {id(times): sorted(times) for times in networks}
        self._growths: dict[tuple[int, int], float | None] = {}  # from one batch size to another

    def bound_s(self, times: _TimesBySize | None, size: int) -> tuple[float, float]:
        """Bound the seconds of a trial; without times of its network, by the average of all."""
        times = self._average if times is None else times
        if size in times:
            return times[size], times[size]
        nearest, *further = self._list_nearest(times, size)
        growth = self._compute_growth(nearest, size)
        if growth is not None:
            return times[nearest] * growth, times[nearest] * growth
        low, high = sorted((times[nearest], times[nearest] * size / nearest))
        if further:
            steps = (size - nearest) / (nearest - further[0])
            seconds = times[nearest] + steps * (times[nearest] - times[further[0]])
            noise = _NOISE * times[nearest] * abs(steps)
            low, high = max(low, min(high, seconds - noise)), min(high, max(low, seconds + noise))
        return low, high

    def _list_nearest(self, times: _TimesBySize, size: int) -> list[int]:
        """List the two measured batch sizes that are nearest to one by their ratio, if there are two."""
        sizes = self._sizes[id(times)]
        place = bisect(sizes, size)
        return sorted(sizes[max(place - 2, 0) : place + 2], key=lambda measured: abs(math.log(measured / size)))[:2]

    def _compute_growth(self, nearest: int, size: int) -> float | None:
        """Compute how many times longer other networks take at another batch size; None if none has both."""
        if (nearest, size) not in self._growths:
            ratios = [other[size] / other[nearest] for other in self._networks if size in other and other.get(nearest)]
            self._growths[nearest, size] = sum(ratios) / len(ratios) if ratios else None
        return self._growths[nearest, size]

    @cached_property
    def _average(self) -> _TimesBySize:
        """The average seconds of all networks, for one that is not measured yet."""
        by_size: dict[int, list[float]] = {}
        for size, seconds in (item for network in self._networks for item in network.items()):
            by_size.setdefault(size, []).append(seconds)
        average = {size: sum(seconds) / len(seconds) for size, seconds in by_size.items()}
        self._sizes[id(average)] = sorted(average)
        return average


def _sum(rates: Iterable[_Rate]) -> _Rate:
    total = _Rate("")
    for rate in rates:
        total.seconds, total.units = total.seconds + rate.seconds, total.units + rate.units
    return total


def describe_search(event: Mapping[str, Any]) -> str:
    """Describe how far a compiler's search for fast code is."""
    text = f"{event['text']}, {event['done']} of {event['total']} candidates"
    if event["best_s"] is not None:
        text += f", best {format_seconds(event['best_s'])}"
    if event["left_s"] is not None:
        text += f", about {format_duration(event['left_s'])} left"
    return text
