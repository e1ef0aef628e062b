"""In which order the compilers of a group take their turns, and what each does in its turn."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import TypeVar

from ngbkit.device.timing.sampling import block_size

T = TypeVar("T")

# The other compilers' turns leave cold caches and sleeping threads behind. Measured beside onnxruntime and openvino, a
# first call of resnet18 (28 ms) was 10 % slower than one after five others, and one of deit3_small (80 ms) 7 %; after a
# single call that settles it was 0.5 % and 3 %. A call longer than this is taken not to notice.
SETTLING_CALL_S = 0.5
# In as many seconds, five, eight or ten samples a turn leave a ratio equally uncertain; the call that settles is a
# smaller part of more.
SAMPLES_A_TURN = 8
# One sample a turn leaves a ratio as uncertain as more of them do in as many seconds, and can stop after fewer; a turn
# of short calls is too short for one.
SAMPLES_A_LOOK = 1
SHORT_SAMPLES_A_LOOK = 4


def plan_turns(repeats: int, fastest_call_s: float, min_rounds: int) -> list[int]:
    """How many samples each compiler of a group takes in each round, `repeats` in all.

    Parameters
    ----------
    repeats
        Samples a trial.
    fastest_call_s
        How long a settled call of the group's fastest compiler takes, in seconds.
    min_rounds
        Rounds that there are at least, as far as there are samples: in a single one, whatever disturbs it would hit one
        compiler and not the others, and an interval from a few would not mean much.
    """
    if fastest_call_s >= SETTLING_CALL_S:
        return [1] * repeats
    samples = max(1, min(SAMPLES_A_TURN, repeats // min_rounds))
    whole, rest = divmod(repeats, samples)
    return [samples] * whole + ([rest] if rest else [])


def turns_without_end(fastest_call_s: float) -> Iterator[int]:
    """How many samples each compiler takes in each round where something else says when to stop."""
    return repeat(SHORT_SAMPLES_A_LOOK if block_size(fastest_call_s) > 1 else SAMPLES_A_LOOK)


def settling_calls(call_s: float) -> int:
    """How many calls that are not timed a turn begins with, by how long a call takes, in seconds.

    One, or as many short ones as a sample holds. After another process had the cores, the first of five calls of 1.1 ms
    was 6 % slower than the fifth; after ten that settled, the next ten were alike to 1 %.
    """
    return block_size(call_s) if call_s < SETTLING_CALL_S else 0


def shuffled(lanes: Sequence[T], seed: int, round_number: int) -> list[T]:
    """The lanes in an order that differs from round to round and is the same for the same seed."""
    order = list(lanes)
    random.Random(f"{seed}/{round_number}").shuffle(order)
    return order
