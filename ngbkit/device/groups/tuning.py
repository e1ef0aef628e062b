"""The tuning budget of a sweep on this device, divided among the trials that tune, across restarts."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from ngbkit.options import LAYOUT
from ngbkit.sweep.column import Column
from ngbkit.sweep.journal import Journal

_KIND = "tuning"


def locate_folder(state_dir: Path, device: str) -> Path:
    """Locate the tuning results of a device, which took long and so are no cache that a cold compile clears."""
    return state_dir / LAYOUT.tuning / device


@dataclass(frozen=True, slots=True)
class Budget:
    """The total seconds that a sweep allows on this device; None for no limit."""

    seconds: float | None
    # Contains the cost so far.
    journal: Journal

    def allot(self, trials: int) -> float | None:
        """Allot the seconds of the next of that many trials still to tune."""
        if self.seconds is None:
            return None
        spent = sum(float(cost["seconds"]) for cost in self.journal.notes(_KIND).values())
        return max(0.0, self.seconds - spent) / max(trials, 1)


@dataclass(slots=True)
class JournalledSearch:
    """One compile that tunes, whose cost it records in the journal at each report of its progress."""

    trial_id: str
    journal: Journal
    _earlier_s: float = field(init=False)
    _started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._earlier_s = self.journal.notes(_KIND).get(self.trial_id, {"seconds": 0.0})["seconds"]

    def record(self) -> None:
        """Record the cost so far."""
        # Written at once, so that a killed engine loses nothing; a report arrives a few times a minute.
        self.journal.note(_KIND, self.trial_id, {"seconds": self._earlier_s + time.monotonic() - self._started})


def is_tuned(column: Column) -> bool:
    """Return whether the compiler of a column searches for fast code, with its options."""
    compiler = column.load_compiler()
    return compiler.tunes(compiler.settle(column.settings))
