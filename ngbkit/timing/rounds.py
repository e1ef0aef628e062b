"""In which order the compilers of a group take their turns, and what each does in its turn."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

# The other compilers' turns leave cold caches and sleeping threads behind. Measured beside onnxruntime and openvino, a
# first call of resnet18 (28 ms) was 10 % slower than one after five others, and one of deit3_small (80 ms) 7 %; after a
# single call that settles it was 0.5 % and 3 %. A call longer than this is taken not to notice.
SETTLING_CALL_S = 0.5
CALLS_A_TURN = 5
# In a single round, whatever disturbs it would hit one compiler and not the others.
LEAST_ROUNDS = 5


def plan_turns(repeats: int, fastest_call_s: float) -> list[int]:
    """How many timed calls each compiler of a group takes in each round, `repeats` in all.

    Parameters
    ----------
    repeats
        Samples a trial.
    fastest_call_s
        How long a settled call of the group's fastest compiler takes, in seconds.
    """
    if fastest_call_s >= SETTLING_CALL_S:
        return [1] * repeats
    calls = max(1, min(CALLS_A_TURN, repeats // LEAST_ROUNDS))
    whole, rest = divmod(repeats, calls)
    return [calls] * whole + ([rest] if rest else [])


def settling_calls(call_s: float) -> int:
    """How many calls that are not timed a turn begins with, by how long a call takes, in seconds."""
    return 1 if call_s < SETTLING_CALL_S else 0


def shuffled(lanes: Sequence[T], seed: int, round_number: int) -> list[T]:
    """The lanes in an order that differs from round to round and is the same for the same seed."""
    order = list(lanes)
    random.Random(f"{seed}/{round_number}").shuffle(order)
    return order
