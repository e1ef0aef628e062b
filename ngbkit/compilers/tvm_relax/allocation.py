"""Allocates the next candidates to the function of a network that is likely to gain most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

# Weight of a function's past gains against its current time, as in Ansor (OSDI 2020, section 6.1).
_PAST = 0.2
_WINDOW = 3


@dataclass(slots=True, kw_only=True)
class FunctionHistory:
    """The results of one function's candidates so far."""

    weight: float  # calls of the function per call of the network
    work: float  # floating-point operations of one call
    count: int = 0  # candidates tried
    best_s: float | None = None  # seconds of the fastest; None until a candidate works
    best_count: int = 0  # candidates tried when the fastest was found
    rounds: list[tuple[int, float]] = field(default_factory=list)  # count and best_s after each round

    def add(self, seconds: float | None) -> None:
        """Add the result of one candidate; None for a failed one."""
        self.count += 1
        if seconds is not None and (self.best_s is None or seconds < self.best_s):
            self.best_s, self.best_count = seconds, self.count

    def close_round(self) -> None:
        """Record the best time at the end of a round."""
        if self.best_s is not None:
            self.rounds.append((self.count, self.best_s))

    def has_converged(self, early_stop: int) -> bool:
        """Return whether the last `early_stop` candidates brought no improvement; never if it is 0."""
        return bool(early_stop) and self.count - self.best_count >= early_stop

    def estimate_gain(self) -> float:
        """Estimate how many seconds per call of the network one more candidate may save."""
        if self.best_s is None:
            return float("inf")
        count, seconds = self.rounds[-_WINDOW:][0] if self.rounds else (0, self.best_s)
        slope = (seconds - self.best_s) / max(1, self.count - count)
        return self.weight * (_PAST * slope + (1 - _PAST) * self.best_s / self.count)


def choose(histories: Sequence[FunctionHistory]) -> int:
    """Choose the function to try next: first each one once, heaviest first, then the one with the largest gain."""
    untried = [index for index, history in enumerate(histories) if not history.count]
    if untried:
        return max(untried, key=lambda index: (histories[index].weight * histories[index].work, -index))
    return max(range(len(histories)), key=lambda index: (histories[index].estimate_gain(), -index))
