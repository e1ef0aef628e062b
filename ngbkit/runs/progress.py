"""The progress of a run: the recorded trials, the current activity of each device, and the time left."""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from statistics import median
from typing import Any

from ngbkit.errors import UnknownNameError
from ngbkit.sweep.trials import Trial
from ngbkit.user_text import format_duration, format_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a run, or of its part on one device."""

    done: int  # recorded trials
    total: int
    statuses: Mapping[str, int]  # records of each
    share: float  # of the work that is done, 0 to 1: of each trial its compilation, and its rounds
    text: str  # the current activity
    # Expected until the end; None while it is unknown of a device, as of one that waits for its turn.
    remaining_s: float | None
    other_work: str = ""  # beside the measurement, such as "46 % of all cores (python)"; empty if that is little
    short: int = 0  # recorded trials that were stopped before they had all of their samples
    # By step (starting, preparing, compiling, measuring), on the device that they took longest.
    seconds: Mapping[str, float] = field(default_factory=dict)


class ProgressTracker:
    """Tracks the trials of a run by device, since devices work in parallel and the slowest one finishes last."""

    def __init__(self, trials: Mapping[str, Trial], statuses: Mapping[str, str], waves: int = 1) -> None:
        # Displays take snapshots on other threads than that of the run, which changes what they read.
        self._lock = threading.Lock()
        self._trials = trials
        self._statuses = {trial_id: status for trial_id, status in statuses.items() if trial_id in trials}
        by_device: dict[str, dict[str, Trial]] = {}
        for trial_id, trial in trials.items():
            by_device.setdefault(trial.device, {})[trial_id] = trial
        self._short: dict[str, set[str]] = {device: set() for device in by_device}
        self._counts = {device: Counter[str]() for device in by_device}
        for trial_id, status in self._statuses.items():
            self._counts[trials[trial_id].device][status] += 1
        self._totals = {device: len(part) for device, part in by_device.items()}
        self._times_left = {device: TimeLeft(part, finished=self._statuses) for device, part in by_device.items()}
        self._texts = dict.fromkeys(by_device, "starting")
        self._other_work = dict.fromkeys(by_device, "")
        self._text = "starting"
        self._wave, self._waves = 0, waves

    def begin_wave(self, wave: int, trial_ids: Collection[str]) -> None:
        """Begin to measure trials once more; `wave` counts from 0."""
        with self._lock:
            self._wave = wave
            again = [self._trials[name] for name in trial_ids if name in self._trials]
            for device, earlier in self._times_left.items():
                part = {trial.id: trial for trial in again if trial.device == device}
                self._times_left[device] = TimeLeft(part, finished=(), seconds=earlier.seconds)

    @property
    def statuses(self) -> dict[str, str]:
        """The status of each recorded trial, by trial id."""
        with self._lock:
            return dict(self._statuses)

    def record(self, trial_id: str, status: str, *, is_short: bool = False) -> None:
        """Count a record, unless its trial does not belong to the run, as an anchor's does not."""
        trial = self._trials.get(trial_id)
        if trial is not None:
            with self._lock:
                counts, short = self._counts[trial.device], self._short[trial.device]
                if trial_id in self._statuses:
                    counts[self._statuses[trial_id]] -= 1
                self._statuses[trial_id] = status
                counts[status] += 1
                (short.add if is_short else short.discard)(trial_id)
                self._times_left[trial.device].finish(trial_id)

    def prepare(self, device: str) -> None:
        """Begin to prepare a network on a device."""
        if device in self._times_left:
            with self._lock:
                self._times_left[device].prepare()

    def compile(self, device: str, trial_id: str) -> None:
        """Begin to compile a trial on a device."""
        if device in self._times_left:
            with self._lock:
                self._times_left[device].compile(trial_id)

    def advance(self, device: str, trial_ids: Iterable[str], share: float) -> None:
        """Set which share (0 to 1) of their rounds the trials that a device measures now have completed."""
        if device in self._times_left:
            with self._lock:
                self._times_left[device].advance(trial_ids, share)

    def set_text(self, text: str, device: str | None = None) -> None:
        """Set the current activity, of one device or of all."""
        self._text = text
        for label in self._texts if device is None else {device} & set(self._texts):
            self._texts[label] = text

    def set_other_work(self, device: str, text: str) -> None:
        """Set what runs beside the measurement on a device."""
        if device in self._other_work:
            self._other_work[device] = text

    def snapshot(self, device: str | None = None) -> Progress:
        """Summarize the progress of the whole run, or of its part on one device."""
        if device is not None and device not in self._totals:
            raise UnknownNameError("device", device, self._totals)
        devices = self._totals.keys() if device is None else {device}
        total = sum(self._totals[label] for label in devices)
        with self._lock:
            estimates = [self._estimate_s(self._times_left[label]) for label in devices]
            done = sum(self._times_left[label].share * self._totals[label] for label in devices)
            seconds = [dict(self._times_left[label].seconds) for label in devices]
            short = sum(len(self._short[label]) for label in devices)
            statuses = sum((self._counts[label] for label in devices), Counter[str]())
        activity = self._text if device is None else self._texts[device]
        busy = {label: text for label in devices if (text := self._other_work[label])}
        is_named = device is None and len(self._totals) > 1
        return Progress(
            done=statuses.total(),
            total=total,
            statuses=statuses,
            share=(self._wave + done / max(total, 1)) / self._waves,
            text=f"wave {self._wave + 1} of {self._waves}: {activity}" if self._wave else activity,
            remaining_s=None if None in estimates else max((seconds or 0.0 for seconds in estimates), default=None),
            other_work=", ".join(f"{text} of {label}" if is_named else text for label, text in busy.items()),
            short=short,
            seconds=max(seconds, key=lambda steps: sum(steps.values()), default={}),
        )

    def _estimate_s(self, left: TimeLeft) -> float | None:
        """Estimate the seconds until the end of the last wave: each takes as long as those until now."""
        estimate_s = left.estimate_s()
        if estimate_s is None:
            return None
        waves_s = (sum(left.seconds.values()) + estimate_s) / (self._wave + 1)
        return estimate_s + (self._waves - 1 - self._wave) * waves_s


class TimeLeft:
    """Estimates the time left for `trials`, of which those in `finished` are recorded.

    A network is prepared once; a trial is compiled once, and measured in rounds. The rest takes the median of what is
    done: of trials of the same compiler, and of the same batch size or else of the nearest.
    """

    def __init__(
        self, trials: Mapping[str, Trial], finished: Collection[str], seconds: Mapping[str, float] | None = None
    ) -> None:
        self._trials = trials
        # The batch sizes of the trials without a record, and the compilers of those that are not compiled, by trial id.
        self._open = {name: trial.batch_size for name, trial in trials.items() if name not in finished}
        self._waiting = {name: trials[name].compiler for name in self._open}
        self._unprepared = {_get_network(trials[name]) for name in self._open}
        self._prepared = 0
        # The seconds that each trial took, by its compiler and by its batch size.
        self._compiling: dict[str, list[float]] = {}
        self._measuring: dict[int, list[float]] = {}
        # Of the trials in rounds: which share of these is done, how many trials began them, and the seconds so far.
        self._shares: dict[str, float] = {}
        self._members, self._rounds_s = 0, 0.0
        # What takes the time since the latest event.
        self._step, self._trial_id, self._updated_s = "starting", "", time.monotonic()
        #: The seconds that each step has taken.
        self.seconds = dict(seconds or dict.fromkeys(("starting", "preparing", "compiling", "measuring"), 0.0))

    def prepare(self) -> None:
        """Begin to prepare a network."""
        self._switch("preparing")

    def compile(self, trial_id: str) -> None:
        """Begin to compile a trial; an anchor, which is no trial of the sweep, belongs to the trial before it."""
        if trial_id in self._trials:
            self._switch("compiling", trial_id)
            self._count_network(trial_id)
            self._shares, self._rounds_s = {}, 0.0
            if trial_id in self._open:  # once more, after a crash of the engine
                self._waiting[trial_id] = self._trials[trial_id].compiler

    def advance(self, trial_ids: Iterable[str], share: float) -> None:
        """Set which share (0 to 1) of their rounds the trials that are being measured have completed."""
        names = [name for name in trial_ids if name in self._trials]
        if names:
            self._switch("measuring")
            self._members = len(names)
            self._shares |= {name: share for name in names if name in self._open}

    def finish(self, trial_id: str) -> None:
        """Count a trial as recorded."""
        if trial_id in self._shares:
            self._switch("measuring")
            size = self._trials[trial_id].batch_size
            self._measuring.setdefault(size, []).append(self._rounds_s / self._members)
        elif trial_id == self._trial_id:
            self._switch("")
        self._count_network(trial_id)
        for trials in (self._open, self._waiting, self._shares):
            trials.pop(trial_id, None)
        if not self._trial_id and not self._shares:
            self._switch("")

    @property
    def share(self) -> float:
        """The share of the work that is done: a trial is compiled, and measured in rounds."""
        steps = 2 * len(self._trials) - len(self._open) - len(self._waiting) + sum(self._shares.values())
        return steps / (2 * len(self._trials)) if self._trials else 1.0

    def estimate_s(self) -> float | None:
        """Estimate the seconds until the end; None until each step that is left was done once, or in part."""
        rounds: dict[int, float] = dict(Counter(self._open.values()))
        measuring = dict(self._measuring)
        for name, share in self._shares.items():
            size = self._open[name]
            rounds[size] -= share
            if share:
                measuring.setdefault(size, [self._rounds_s / self._members / share])
        if not (rounds and measuring):
            return None if rounds else 0.0
        preparing_s = self.seconds["preparing"] / self._prepared if self._prepared else math.nan
        compiling = {compiler: median(times) for compiler, times in self._compiling.items()}
        usual_s = median([*chain.from_iterable(self._compiling.values())] or [math.nan])
        estimate_s = preparing_s * len(self._unprepared) if self._unprepared else 0.0
        for compiler, count in Counter(self._waiting.values()).items():
            estimate_s += count * compiling.get(compiler, usual_s)
        sizes = sorted(measuring)
        for size, units in rounds.items():
            place = bisect_left(sizes, size)
            nearest = min(sizes[max(place - 1, 0) : place + 1], key=lambda other: abs(math.log(other / size)))
            # A call takes from as long to as many times longer as a batch is larger: the root is between both.
            estimate_s += units * median(measuring[nearest]) * math.sqrt(size / nearest)
        if math.isnan(estimate_s):
            return None
        under_way_s = time.monotonic() - self._updated_s if self._step else 0.0
        # A step that takes longer than expected leaves the rest as it was.
        if self._step == "preparing":
            under_way_s = min(under_way_s, preparing_s if self._unprepared else 0.0)
        elif self._trial_id in self._waiting:
            under_way_s = min(under_way_s, compiling.get(self._waiting[self._trial_id], usual_s))
        return max(0.0, estimate_s - under_way_s)

    def _count_network(self, trial_id: str) -> None:
        network = _get_network(self._trials[trial_id])
        if network in self._unprepared:
            self._unprepared.discard(network)
            self._prepared += 1

    def _switch(self, step: str, trial_id: str = "") -> None:
        """Add the time since the latest event to what it began, and begin another step."""
        now_s = time.monotonic()
        took_s = now_s - self._updated_s
        if self._step:
            self.seconds[self._step] += took_s
        if self._step == "measuring":
            self._rounds_s += took_s
        if self._trial_id:
            self._compiling.setdefault(self._trials[self._trial_id].compiler, []).append(took_s)
            self._waiting.pop(self._trial_id, None)
        self._step, self._trial_id, self._updated_s = step, trial_id, now_s


def _get_network(trial: Trial) -> tuple[object, ...]:
    return trial.workload, trial.factors


def describe_search(event: Mapping[str, Any]) -> str:
    """Describe how far a compiler's search for fast code is."""
    text = f"{event['text']}, {event['done']} of {event['total']} candidates"
    if event["best_s"] is not None:
        text += f", best {format_seconds(event['best_s'])}"
    if event["left_s"] is not None:
        text += f", about {format_duration(event['left_s'])} left"
    return text
