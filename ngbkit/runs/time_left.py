"""Estimates how long the rest of a run takes."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ngbkit.sweep.trials import Trial


class TimeLeft:
    """Estimates the time left for `trials`, of which those in `finished` are recorded, from the time spent so far."""

    def __init__(self, trials: Mapping[str, Trial], finished: Collection[str]) -> None:
        # Compiling costs about the same at any batch size; timing grows with it.
        self._weights = {trial_id: 4.0 + trial.batch_size for trial_id, trial in trials.items()}
        self._left = sum(weight for trial_id, weight in self._weights.items() if trial_id not in finished)
        self._spent = self._under_way = 0.0
        self._started = self._updated = time.monotonic()

    def finish(self, trial_id: str) -> None:
        """Count a trial as recorded."""
        weight = self._weights[trial_id]
        self._spent, self._left, self._under_way = self._spent + weight, self._left - weight, 0.0
        self._updated = time.monotonic()

    def advance(self, trial_ids: Iterable[str], share: float) -> None:
        """Set which share (0 to 1) of their rounds the trials that are being measured have completed."""
        self._under_way = share * sum(self._weights.get(trial_id, 0.0) for trial_id in trial_ids)
        self._updated = time.monotonic()

    def estimate_s(self) -> float | None:
        """Estimate the seconds until the end; None until some work is done."""
        completed = self._spent + self._under_way
        if not completed:
            return None
        rate = (self._updated - self._started) / completed
        return max(0.0, rate * (self._left - self._under_way) - (time.monotonic() - self._updated))


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


def describe_search(event: Mapping[str, Any]) -> str:
    """Describe how far a compiler's search for fast code is."""
    text = f"{event['text']}, {event['done']} of {event['total']} candidates"
    if event["best_s"] is not None:
        text += f", best {event['best_s'] * 1e3:.3g} ms"
    if event["left_s"] is not None:
        text += f", about {format_duration(event['left_s'])} left"
    return text
