"""The tuning budget of a sweep on this device, divided among the trials that tune, across restarts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ngbkit.device.isolation.channel import Message
from ngbkit.options import LAYOUT
from ngbkit.sweep.column import Column
from ngbkit.sweep.journal import Journal

_KIND = "tuning"


def locate_folder(state_dir: Path, device: str) -> Path:
    """Locate the tuning results of a device, which took long and so are no cache that a cold compile clears."""
    return state_dir / LAYOUT.tuning / device


@dataclass(frozen=True, slots=True)
class Budget:
    """The total seconds and candidates that a sweep allows on this device; None for no limit."""

    seconds: float | None
    candidates: int | None
    # Contains the cost so far.
    journal: Journal

    def allot(self, trials: int) -> dict[str, Any]:
        """Allot ``seconds`` and ``candidates`` to the next of that many trials still to tune."""
        costs = self.journal.notes(_KIND).values()
        seconds, candidates = (sum(cost[name] for cost in costs) for name in ("seconds", "candidates"))
        trials = max(trials, 1)
        return {
            "seconds": None if self.seconds is None else max(0.0, self.seconds - seconds) / trials,
            "candidates": None if self.candidates is None else max(0, self.candidates - int(candidates)) // trials,
        }


@dataclass(slots=True)
class JournalledSearch:
    """One compile that tunes, whose cost it records in the journal from its progress reports."""

    trial_id: str
    journal: Journal
    _earlier: Mapping[str, Any] = field(init=False)
    _started: float = field(default_factory=time.monotonic)
    _first: int | None = None

    def __post_init__(self) -> None:
        self._earlier = self.journal.notes(_KIND).get(self.trial_id, {"seconds": 0.0, "candidates": 0})

    def record(self, progress: Message) -> None:
        """Record the cost so far, without the candidates that an earlier, killed process had already measured."""
        candidates = int(progress["done"])
        if self._first is None:
            self._first = candidates
        cost = {
            "seconds": self._earlier["seconds"] + time.monotonic() - self._started,
            "candidates": self._earlier["candidates"] + candidates - self._first,
        }
        # Written at once, so that a killed engine loses nothing; a report arrives a few times a minute.
        self.journal.note(_KIND, self.trial_id, cost)


def is_tuned(column: Column) -> bool:
    """Return whether the compiler of a column searches for fast code, with its options."""
    compiler = column.load_compiler()
    return compiler.tunes(compiler.settle(column.settings))
