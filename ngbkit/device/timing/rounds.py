"""Order of the compilers' turns in a round, and the calls of each turn."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import TypeVar

from ngbkit.device.timing.normal import MAD_SCALE
from ngbkit.device.timing.sampling import choose_block_size

T = TypeVar("T")
# Seconds of a call in the samples of each turn of a compiler, by round.
Turns = Mapping[int, Sequence[float]]

# The other compilers' turns leave cold caches and sleeping threads. On two cores, the first sample of a turn was 1 to
# 4 % slower than a later one at 17 to 36 ms a call, and 2 to 22 % at 1.5 to 10 ms a call; what follows 20 ms later was
# slower by 1 % at most (`tests/bench/machine_time.py profile`).
SETTLING_S = 0.02
# Longer calls than this are assumed to need no settling.
SETTLING_CALL_S = 0.5
# Shorter turns are not judged reliably: the kernel counts the time of other work in ticks of 10 ms.
TURN_S = 0.025
# The samples of a turn while nothing is known about the noise, and the most.
PILOT_SAMPLES, MOST_SAMPLES = 2, 8
# The fewest rounds of which the noise is estimated.
PILOT_ROUNDS = 6


def plan_turns(
    repeats: int | None, fastest_call_s: float, min_rounds: int, choose: Callable[[], int]
) -> Iterator[list[int]]:
    """Plan the samples of each compiler in each round, some rounds at a time, `repeats` in total.

    The first rounds show how much turns and their samples differ; then `choose` is asked how many samples a turn should
    have, and once more whenever as many rounds are over. `repeats` is None if a rule ends the measurement.
    """
    is_long = fastest_call_s >= SETTLING_CALL_S
    samples = 1 if is_long else max(PILOT_SAMPLES, count_least_samples(fastest_call_s))
    if repeats is not None:
        samples = max(1, min(samples, repeats // min_rounds))
    left = math.inf if repeats is None else repeats
    while left:
        count = int(min(min_rounds, left // samples))
        planned = [samples] * count if count else [int(left)]
        yield planned
        left -= sum(planned)
        # Turns of one sample tell nothing about samples of one turn.
        samples = samples if samples == 1 or not left else choose()


def choose_samples(pairs: Sequence[tuple[Turns, Turns]], settling: float, least: int) -> int:
    """Choose the samples of a turn with which a ratio to the reference is most certain after the same time.

    A turn costs `settling` samples before its own. If turns differ by a variance b, and the samples of a turn by w,
    then n turns of k samples have the variance (b + w / k) / n and take n (k + settling): the best k is the square root
    of settling w / b, as of any two-stage sample (Cochran, 1977, "Sampling Techniques", section 10.6).

    `pairs` are the uncontended samples of each compiler and of its baseline. The result is from `least` to
    `MOST_SAMPLES`; without enough rounds to tell it is at least `PILOT_SAMPLES`.
    """
    if not settling:
        return least
    chosen = [
        math.sqrt(settling * within / between) if between > 0 else math.inf
        for within, between in (_estimate_variances(*pair) for pair in pairs)
        if not math.isnan(within)
    ]
    samples = min(median(chosen), MOST_SAMPLES) if chosen else PILOT_SAMPLES
    return max(least, round(samples))


def _estimate_variances(turns: Turns, reference: Turns) -> tuple[float, float]:
    """Estimate the variances within and between turns of the logarithm of a ratio; NaN with too few rounds."""
    columns = [turns] if turns is reference else [turns, reference]
    shared = [number for number in turns if all(len(column.get(number, ())) > 1 for column in columns)]
    if len(shared) < PILOT_ROUNDS:
        return math.nan, math.nan
    logs = [[[math.log(value) for value in column[number]] for number in shared] for column in columns]
    within = sum(_estimate_within(column) for column in logs)
    means = [[fmean(turn) for turn in column] for column in logs]
    ratios = means[0] if len(means) == 1 else [first - second for first, second in zip(*means, strict=True)]
    count = median(len(turn) for turn in logs[0])
    return within, _estimate_variance(ratios) - within / count


def _estimate_within(turns: Sequence[Sequence[float]]) -> float:
    """Estimate the variance of samples of one turn, from differences of consecutive ones."""
    steps = [abs(later - earlier) for turn in turns for earlier, later in pairwise(turn)]
    return (MAD_SCALE * median(steps)) ** 2 / 2


def _estimate_variance(values: Sequence[float]) -> float:
    center = median(values)
    return (MAD_SCALE * median(abs(value - center) for value in values)) ** 2


def count_settling_calls(call_s: float) -> int:
    """Count the untimed calls at the beginning of a turn, by the duration of a call."""
    return max(1, round(SETTLING_S / call_s)) if 0 < call_s < SETTLING_CALL_S else 0


def count_least_samples(call_s: float) -> int:
    """Count the fewest samples of a turn that is long enough to be judged, by the duration of a call."""
    sample_s = choose_block_size(call_s) * call_s
    return max(1, math.ceil((TURN_S - count_settling_calls(call_s) * call_s) / sample_s)) if sample_s > 0 else 1


def shuffle(items: Sequence[T], seed: int, round_number: int) -> list[T]:
    """Shuffle items into an order that differs from round to round and depends only on seed and round."""
    order = list(items)
    random.Random(f"{seed}/{round_number}").shuffle(order)
    return order
