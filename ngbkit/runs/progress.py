"""How far a run is: which trials have a record, what each device does now, and how long the rest will take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ngbkit.errors import UnknownNameError
from ngbkit.runs.time_left import Clock
from ngbkit.sweep.trials import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is, or its part on one device.

    Parameters
    ----------
    done, total
        Trials with a record, and trials in all.
    statuses
        How many records there are of each status.
    text
        What is being done now.
    remaining_s
        Expected seconds until the end; None before there is anything to tell it from.
    """

    done: int
    total: int
    statuses: Mapping[str, int]
    text: str
    remaining_s: float | None


class Tally:
    """Counts what devices tell, each on its own: they work side by side, and the slowest one ends last.

    Parameters
    ----------
    trials
        All trials of the run, by their ids.
    statuses
        By the same ids, those that had a record before it began.
    """

    def __init__(self, trials: Mapping[str, Trial], statuses: Mapping[str, str]) -> None:
        self._trials = trials
        self._statuses = {key: status for key, status in statuses.items() if key in trials}
        parts: dict[str, dict[str, Trial]] = {}
        for key, trial in trials.items():
            parts.setdefault(trial.device, {})[key] = trial
        self._totals = {device: len(part) for device, part in parts.items()}
        self._clocks = {device: Clock(part, done=self._statuses) for device, part in parts.items()}
        self._texts = dict.fromkeys(parts, "starting")
        self._text = "starting"

    @property
    def statuses(self) -> dict[str, str]:
        """By the ids of trials, the status of each that has a record."""
        return dict(self._statuses)

    def count(self, trial_id: str, status: str) -> None:
        """A record came; one of a trial that is none of the run's, as an anchor's is, does not count."""
        trial = self._trials.get(trial_id)
        if trial is not None:
            self._statuses[trial_id] = status
            self._clocks[trial.device].finished(trial_id)

    def advance(self, device: str, trial_ids: Iterable[str], share: float) -> None:
        """The trials that are measured side by side on a device are so far through their rounds: 0 to 1."""
        if device in self._clocks:
            self._clocks[device].advanced(trial_ids, share)

    def say(self, text: str, device: str | None = None) -> None:
        """What is being done now, on a device or on all."""
        self._text = text
        for one in self._texts if device is None else {device} & set(self._texts):
            self._texts[one] = text

    def progress(self) -> Progress:
        """How far all of it is, at this moment."""
        statuses = self.statuses
        left = [clock.remaining_s() for clock in self._clocks.values()]
        known = [seconds for seconds in left if seconds is not None]
        return Progress(
            done=len(statuses),
            total=len(self._trials),
            statuses=Counter(statuses.values()),
            text=self._text,
            remaining_s=max(known, default=None),
        )

    def progress_of(self, device: str) -> Progress:
        """How far its part on one device is.

        Raises
        ------
        UnknownNameError
            The run does not measure there.
        """
        if device not in self._totals:
            raise UnknownNameError("device", device, self._totals)
        statuses = [status for key, status in self.statuses.items() if self._trials[key].device == device]
        return Progress(
            done=len(statuses),
            total=self._totals[device],
            statuses=Counter(statuses),
            text=self._texts[device],
            remaining_s=self._clocks[device].remaining_s(),
        )
