"""Order of the compilers' turns in a round, and the calls of each turn."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import TypeVar

from ngbkit.device.timing.sampling import choose_block_size

T = TypeVar("T")

# The other compilers' turns leave cold caches and sleeping threads. Measured beside onnxruntime and openvino, a first
# call of resnet18 (28 ms) was 10 % slower than one after five others, and one of deit3_small (80 ms) 7 %; after one
# settling call it was 0.5 % and 3 %. Longer calls than this are assumed to need none.
SETTLING_CALL_S = 0.5
# In the same time, five, eight or ten samples a turn give a ratio of equal uncertainty; with more of them the settling
# call is a smaller share.
SAMPLES_A_TURN = 8
# One sample a turn gives a ratio of the same uncertainty as more of them in the same time, and can stop earlier; with
# short calls such a turn would be too short.
SAMPLES_A_LOOK = 1
SHORT_SAMPLES_A_LOOK = 4


def plan_turns(repeats: int, fastest_call_s: float, min_rounds: int) -> list[int]:
    """Plan the samples of each compiler in each round, `repeats` in total, by the group's fastest settled call.

    There are at least `min_rounds`, if the samples suffice: a disturbance of a single round would affect one compiler
    and not the others, and an interval from a few rounds is unreliable.
    """
    if fastest_call_s >= SETTLING_CALL_S:
        return [1] * repeats
    samples = max(1, min(SAMPLES_A_TURN, repeats // min_rounds))
    full_rounds, rest = divmod(repeats, samples)
    return [samples] * full_rounds + ([rest] if rest else [])


def repeat_turns(fastest_call_s: float) -> Iterator[int]:
    """Yield the samples of each compiler in each round without end, for a measurement that a rule stops."""
    return repeat(SHORT_SAMPLES_A_LOOK if choose_block_size(fastest_call_s) > 1 else SAMPLES_A_LOOK)


def count_settling_calls(call_s: float) -> int:
    """Count the untimed calls at the beginning of a turn, by the duration of a call.

    It is one call, or as many short ones as a sample has. After another process had used the cores, the first of five
    calls of 1.1 ms was 6 % slower than the fifth; after ten settling calls, the next ten were equal to 1 %.
    """
    return choose_block_size(call_s) if call_s < SETTLING_CALL_S else 0


def shuffle(items: Sequence[T], seed: int, round_number: int) -> list[T]:
    """Shuffle items into an order that differs from round to round and depends only on seed and round."""
    order = list(items)
    random.Random(f"{seed}/{round_number}").shuffle(order)
    return order
