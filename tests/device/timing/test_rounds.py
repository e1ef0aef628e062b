"""Rounds: the same turns for every compiler of a group, in an order that changes."""

from __future__ import annotations

from itertools import chain, islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngbkit.device.timing.rounds import (
    MOST_SAMPLES,
    PILOT_SAMPLES,
    SETTLING_S,
    TURN_S,
    choose_samples,
    count_least_samples,
    count_settling_calls,
    plan_turns,
    shuffle,
)
from ngbkit.device.timing.sampling import choose_block_size


def plan(repeats: int | None, call_s: float, min_rounds: int, *choices: int, most: int = 1000) -> list[int]:
    """The samples of each round, with these choices in turn, the last one for ever."""
    rest = list(choices)
    turns = chain.from_iterable(
        plan_turns(repeats, call_s, min_rounds, lambda: rest.pop(0) if len(rest) > 1 else rest[0])
    )
    return list(islice(turns, most))


@given(
    repeats=st.integers(1, 500),
    call_s=st.floats(1e-6, 10),
    min_rounds=st.integers(1, 40),
    choices=st.lists(st.integers(1, MOST_SAMPLES), min_size=1),
)
def test_the_turns_of_a_group_have_the_requested_samples(
    repeats: int, call_s: float, min_rounds: int, choices: list[int]
) -> None:
    """The turns have exactly the requested samples, whatever the duration of a call."""
    turns = plan(repeats, call_s, min_rounds, *choices)

    assert repeats == sum(turns)
    assert len(turns) >= min(repeats, min_rounds)


def test_few_samples_are_spread_over_rounds() -> None:
    """A plan spreads samples over as many rounds as they allow, in short turns first."""
    assert ([2] * 10, [1, 1, 1]) == (plan(20, 0.02, 10, 8), plan(3, 0.02, 10, 8))
    assert [2] * 10 + [8] * 10 == plan(100, 0.02, 10, 8)


def test_the_samples_of_a_turn_are_chosen_again_until_there_is_one() -> None:
    """The samples of a turn are chosen again every ten rounds, until there is one."""
    assert [2] * 10 + [3] * 10 + [1] * 50 == plan(100, 0.02, 10, 3, 1, 8)


def test_a_rule_that_ends_the_measurement_begins_with_the_minimum_of_rounds() -> None:
    """A rule begins with the minimum of rounds, in short turns."""
    assert [2] * 12 + [4] * 8 == plan(None, 0.1, 12, 4, most=20)
    assert [1] * 20 == plan(None, 2.0, 12, 8, most=20)


def test_calls_settle_for_as_long_whatever_their_duration() -> None:
    """Calls settle for a constant time, at least one call, and a long call never does."""
    assert (1, 0) == (count_settling_calls(0.1), count_settling_calls(2.0))
    assert SETTLING_S == pytest.approx(count_settling_calls(1e-4) * 1e-4)
    assert [1] * 100 == plan(100, 2.0, 10, 8)


@given(call_s=st.floats(1e-6, 10))
def test_a_turn_is_long_enough_to_be_judged(call_s: float) -> None:
    """The untimed calls and the samples of a turn are long enough together to be judged."""
    sample_s = choose_block_size(call_s) * call_s
    settling_s = count_settling_calls(call_s) * call_s

    assert settling_s + count_least_samples(call_s) * sample_s >= TURN_S * (1 - 1e-9)


@pytest.mark.parametrize(
    ("between", "within", "settling", "expected"),
    [(0.1, 0.01, 1.0, 1), (0.01, 0.01, 4.0, 2), (0.01, 0.04, 1.0, 4), (0.0, 0.05, 1.0, MOST_SAMPLES)],
)
def test_turns_are_short_where_turns_differ_and_long_where_their_samples_do(
    between: float, within: float, settling: float, expected: int
) -> None:
    """The variances of turns and samples determine the length of turns."""
    generator = np.random.default_rng(0)

    def draw() -> dict[int, list[float]]:
        logs = generator.normal(0, between, (4000, 1)) + generator.normal(0, within, (4000, 2))
        return {number: np.exp(turn).tolist() for number, turn in enumerate(logs)}

    reference = draw()
    pairs = [(draw(), reference), (draw(), reference)]
    samples = choose_samples(pairs, settling, 1)

    assert samples == pytest.approx(expected, rel=0.25)
    assert choose_samples(pairs, settling, 6) == max(6, samples)


def test_what_slows_a_whole_round_does_not_shorten_turns() -> None:
    """A ratio of the same round is not affected by it."""
    generator = np.random.default_rng(0)
    drift = generator.normal(0, 0.3, (400, 1))
    columns = [
        {number: np.exp(turn).tolist() for number, turn in enumerate(drift + generator.normal(0, 0.02, (400, 2)))}
        for _ in range(2)
    ]

    assert choose_samples([(columns[1], columns[0])], 1.0, 1) > 2
    assert choose_samples([(columns[0], columns[0])], 1.0, 1) == 1


def test_few_rounds_tell_nothing_about_turns() -> None:
    """The length of turns has its default if rounds are few, single or without a baseline."""
    turns = {number: [0.1, 0.2] for number in range(5)}
    single = {number: [0.1] for number in range(50)}

    for column in (turns, single, {}):
        assert choose_samples([(column, turns)], 1.0, 1) == PILOT_SAMPLES
    assert choose_samples([(turns, turns)], 0.0, 1) == 1


def test_the_order_changes_with_the_round_and_follows_from_the_seed() -> None:
    """The order of workers changes with each round and follows from the seed."""
    workers = ["a", "b", "c", "d"]
    orders = [tuple(shuffle(workers, 0, number)) for number in range(50)]

    assert len(set(orders)) > 10
    assert all(sorted(order) == workers for order in orders)
    assert orders == [tuple(shuffle(workers, 0, number)) for number in range(50)]
    assert {order[0] for order in orders} == set(workers)
