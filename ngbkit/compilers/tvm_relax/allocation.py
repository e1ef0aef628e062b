"""Which function of a network deserves the next candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

# How much the past of a function says of its future, against what it takes now. As in Ansor (OSDI 2020, section 6.1).
_PAST = 0.2
_WINDOW = 3


@dataclass(slots=True, kw_only=True)
class Standing:
    """How far one function has come.

    Parameters
    ----------
    weight
        How often a call of the network calls it.
    work
        Its floating-point operations.
    tried, best
        Candidates so far, and the seconds of the best of them; None before one has worked.
    best_at
        How many had been tried when it was found.
    past
        The best after each round of candidates, with how many had been tried by then.
    """

    weight: float
    work: float
    tried: int = 0
    best: float | None = None
    best_at: int = 0
    past: list[tuple[int, float]] = field(default_factory=list)

    def add(self, seconds: float | None) -> None:
        """Take in what became of one more candidate."""
        self.tried += 1
        if seconds is not None and (self.best is None or seconds < self.best):
            self.best, self.best_at = seconds, self.tried

    def close_round(self) -> None:
        """Take in that a round is over."""
        if self.best is not None:
            self.past.append((self.tried, self.best))

    def has_settled(self, early_stop: int) -> bool:
        """Whether so many candidates in a row have found nothing better; never where that is 0."""
        return bool(early_stop) and self.tried - self.best_at >= early_stop

    def gain(self) -> float:
        """What a further candidate may be hoped to save of a call of the network, in seconds."""
        if self.best is None:
            return float("inf")
        before = self.past[-_WINDOW:][0] if self.past else (0, self.best)
        slope = (before[1] - self.best) / max(1, self.tried - before[0])
        return self.weight * (_PAST * slope + (1 - _PAST) * self.best / self.tried)


def choose(standings: Sequence[Standing]) -> int:
    """The position of the one to go on with: first each in turn, the one with the most work before others."""
    untried = [index for index, one in enumerate(standings) if not one.tried]
    if untried:
        return max(untried, key=lambda index: (standings[index].weight * standings[index].work, -index))
    return max(range(len(standings)), key=lambda index: (standings[index].gain(), -index))
