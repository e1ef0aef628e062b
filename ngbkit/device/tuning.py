"""What tuning may cost: a sweep's budget on this device, shared out among the trials that tune, across restarts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ngbkit.device.channel import Message
from ngbkit.sweep.journal import Journal

_KIND = "tuning"


def folder(state_dir: Path, device: str) -> Path:
    """Where a device keeps what tuning found, apart from the caches: it took long, and no cold compile empties it."""
    return state_dir / "tuning" / device


@dataclass(frozen=True, slots=True)
class Budget:
    """The seconds and the candidates that a sweep allows on this device; None for no limit.

    Parameters
    ----------
    seconds, candidates
        In all.
    journal
        Remembers what was spent.
    """

    seconds: float | None
    candidates: int | None
    journal: Journal

    def share(self, trials: int) -> dict[str, Any]:
        """What the next of so many trials that are left to tune may spend: ``seconds`` and ``candidates``."""
        spent = self.journal.notes(_KIND).values()
        seconds, candidates = (sum(one[name] for one in spent) for name in ("seconds", "candidates"))
        trials = max(trials, 1)
        return {
            "seconds": None if self.seconds is None else max(0.0, self.seconds - seconds) / trials,
            "candidates": None if self.candidates is None else max(0, self.candidates - int(candidates)) // trials,
        }


@dataclass(slots=True)
class Search:
    """One compile that tunes: what it tells of its progress, and what it has cost so far.

    Parameters
    ----------
    trial_id
        Of the trial that it is for.
    journal
        Remembers the cost.
    """

    trial_id: str
    journal: Journal
    _before: Mapping[str, Any] = field(init=False)
    _began: float = field(default_factory=time.monotonic)
    _first: int | None = None

    def __post_init__(self) -> None:
        self._before = self.journal.notes(_KIND).get(self.trial_id, {"seconds": 0.0, "candidates": 0})

    def told(self, progress: Message) -> None:
        """Take in how far it is. What an earlier process had tried when it was killed is not counted again."""
        done = int(progress["done"])
        if self._first is None:
            self._first = done
        spent = {
            "seconds": self._before["seconds"] + time.monotonic() - self._began,
            "candidates": self._before["candidates"] + done - self._first,
        }
        # At once: a killed engine forgets nothing. Those who tune tell of it a few times a minute.
        self.journal.note(_KIND, self.trial_id, spent)
