"""Patience with a contended machine: how long contended calls are repeated, before they are kept as they are."""

from __future__ import annotations

from dataclasses import dataclass

# Shorter pieces of a turn would be judged by a few ticks of the kernel's clock; longer ones fit less often between two
# disturbances.
PIECE_S = 0.1
# Turns that are contended for the most part are repeated only if more than this share of them are: on a quiet machine a
# few are always marked, and their rounds are not worth the time.
SPARED = 0.1
# After so long without an uncontended piece, repeating is futile until there is one again: at least this, or this share
# of the planned time.
_FUTILE_S, _FUTILE_SHARE = 3.0, 0.5


@dataclass(slots=True, kw_only=True)
class Patience:
    """The time that a group may take beyond its planned time, in seconds: for repetitions, and for slower calls."""

    # Of the planned time; 0 repeats nothing.
    factor: float
    # Of all turns without a disturbance; it grows while nothing is known of how many there will be.
    planned_s: float
    extra_s: float = 0.0
    # Since the last uncontended piece.
    _contended_s: float = 0.0

    def record(self, spent_s: float, planned_s: float, *, contended: bool) -> None:
        """Record a piece of a turn, whose planned time is 0 if it is a repetition."""
        self._contended_s = self._contended_s + spent_s if contended else 0.0
        self.extra_s += max(0.0, spent_s - planned_s)

    @property
    def futile(self) -> bool:
        """True if the machine has been contended for so long that repetitions only take longer."""
        return self._contended_s > max(_FUTILE_S, _FUTILE_SHARE * self.planned_s)

    @property
    def lasts(self) -> bool:
        """True if another repetition is worth its time."""
        return self.extra_s < self.factor * self.planned_s and not self.futile
