"""The progress of a run: the recorded trials, the current activity of each device, and the time left."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ngbkit.errors import UnknownNameError
from ngbkit.runs.time_left import TimeLeft
from ngbkit.sweep.trials import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a run, or of its part on one device.

    Parameters
    ----------
    done, total
        Number of recorded trials, and of all trials.
    statuses
        Number of records of each status.
    share
        The share (0 to 1) of the work that is done: of each trial its compilation, and its rounds.
    text
        The current activity.
    remaining_s
        Expected seconds until the end; None while it is unknown of a device, as of one that waits for its turn.
    other_work
        What runs beside the measurement, such as ``"46 % of all cores (python)"``; empty if that is little.
    short
        Number of recorded trials that were stopped before they had all of their samples.
    seconds
        The seconds of each step (starting, preparing, compiling, measuring), on the device that they took longest.
    """

    done: int
    total: int
    statuses: Mapping[str, int]
    share: float
    text: str
    remaining_s: float | None
    other_work: str = ""
    short: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)


class ProgressTracker:
    """Tracks the trials of a run by device, since devices work in parallel and the slowest one finishes last."""

    def __init__(self, trials: Mapping[str, Trial], statuses: Mapping[str, str]) -> None:
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
            estimates = [self._times_left[label].estimate_s() for label in devices]
            done = sum(self._times_left[label].share * self._totals[label] for label in devices)
            seconds = [dict(self._times_left[label].seconds) for label in devices]
            short = sum(len(self._short[label]) for label in devices)
            statuses = sum((self._counts[label] for label in devices), Counter[str]())
        busy = {label: text for label in devices if (text := self._other_work[label])}
        is_named = device is None and len(self._totals) > 1
        return Progress(
            done=statuses.total(),
            total=total,
            statuses=statuses,
            share=done / max(total, 1),
            text=self._text if device is None else self._texts[device],
            remaining_s=None if None in estimates else max((seconds or 0.0 for seconds in estimates), default=None),
            other_work=", ".join(f"{text} of {label}" if is_named else text for label, text in busy.items()),
            short=short,
            seconds=max(seconds, key=lambda steps: sum(steps.values()), default={}),
        )
