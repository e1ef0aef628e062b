"""How long the rest of a run will take."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ngbkit.sweep.trials import Trial


class Clock:
    """Tells the time left from how long what is done took.

    Parameters
    ----------
    trials
        All trials of the run, by their ids.
    done
        The ids of those that were done before it began.
    """

    def __init__(self, trials: Mapping[str, Trial], done: Collection[str]) -> None:
        # Compiling costs about the same at any batch size; timing grows with it.
        self._weights = {key: 4.0 + trial.batch_size for key, trial in trials.items()}
        finished = set(done)
        self._left = sum(weight for key, weight in self._weights.items() if key not in finished)
        self._spent = self._under_way = 0.0
        self._began = self._told = time.monotonic()

    def finished(self, trial_id: str) -> None:
        """This trial has its record."""
        weight = self._weights[trial_id]
        self._spent, self._left, self._under_way = self._spent + weight, self._left - weight, 0.0
        self._told = time.monotonic()

    def advanced(self, trial_ids: Iterable[str], share: float) -> None:
        """These trials, measured side by side, are so far through their rounds: 0 to 1."""
        self._under_way = share * sum(self._weights.get(trial_id, 0.0) for trial_id in trial_ids)
        self._told = time.monotonic()

    def remaining_s(self) -> float | None:
        """Expected seconds until the end; None before there is anything to tell it from."""
        done = self._spent + self._under_way
        if not done:
            return None
        rate = (self._told - self._began) / done
        return max(0.0, rate * (self._left - self._under_way) - (time.monotonic() - self._told))


def duration(seconds: float) -> str:
    """A time in the two largest of its units.

    >>> duration(80.2)
    '1 min 20 s'
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def describe_search(event: Mapping[str, Any]) -> str:
    """How far a search for fast code is, in words."""
    text = f"{event['text']}, {event['done']} of {event['total']} candidates"
    if event["best_s"] is not None:
        text += f", best {event['best_s'] * 1e3:.3g} ms"
    if event["left_s"] is not None:
        text += f", about {duration(event['left_s'])} left"
    return text
