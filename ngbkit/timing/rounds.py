"""In which order the compilers of a group take their turns."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

# A call this short is cheaper than what its caches lose to the other compilers between two turns, so its turn holds
# several.
SHORT_CALL_S = 0.05
CALLS_OF_SHORT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one compiler does in one round.

    Parameters
    ----------
    settle
        Untimed calls first, which bring code and weights back into the caches.
    calls
        Timed calls.
    """

    settle: int
    calls: int


def turns(repeats: int, fastest_call_s: float) -> list[Turn]:
    """One turn a round, the same for all compilers of a group, `repeats` timed calls in all.

    Parameters
    ----------
    repeats
        Samples a trial.
    fastest_call_s
        How long a settled call of the group's fastest compiler takes, in seconds.
    """
    if fastest_call_s >= SHORT_CALL_S:
        return [Turn(settle=0, calls=1)] * repeats
    whole, rest = divmod(repeats, CALLS_OF_SHORT)
    full = [Turn(settle=1, calls=CALLS_OF_SHORT)] * whole
    return full + ([Turn(settle=1, calls=rest)] if rest else [])


def shuffled(lanes: Sequence[T], seed: int, round_number: int) -> list[T]:
    """The lanes in an order that differs from round to round and is the same for the same seed."""
    order = list(lanes)
    random.Random(f"{seed}/{round_number}").shuffle(order)
    return order
