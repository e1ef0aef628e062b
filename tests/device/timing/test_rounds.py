"""Rounds: the same turns for every compiler of a group, in an order that changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ngbkit.device.timing.rounds import plan_turns, settling_calls, shuffled, turns_without_end
from ngbkit.device.timing.sampling import SAMPLE_S, block_size


@given(repeats=st.integers(1, 500), call_s=st.floats(1e-6, 10), least=st.integers(1, 40))
def test_the_turns_of_a_group_take_as_many_samples_as_asked(repeats: int, call_s: float, least: int) -> None:
    """No more and no fewer, whatever a call takes, and in as many rounds as wanted where there are samples for them."""
    turns = plan_turns(repeats, call_s, least)

    assert repeats == sum(turns)
    assert len(turns) >= min(repeats, least)


def test_few_samples_are_spread_over_rounds_all_the_same() -> None:
    """As far as there are samples; and many are not all taken in a few."""
    assert ([2] * 10, [1, 1, 1], [8] * 12 + [4]) == tuple(plan_turns(repeats, 0.001, 10) for repeats in (20, 3, 100))


def test_a_short_call_settles_first_and_a_long_one_does_not() -> None:
    """What settling gives back is a few milliseconds of cold caches; a long call would not notice."""
    short = SAMPLE_S / 10

    assert (block_size(short), 1, 0) == (settling_calls(short), settling_calls(0.1), settling_calls(2.0))
    assert [1] * 100 == plan_turns(100, 2.0, 10)


def test_where_something_else_says_when_to_stop_turns_go_on() -> None:
    """With few samples in each, so that it can be soon; a single short one would be too little."""
    assert ([4, 4, 4], [1, 1, 1]) == tuple(
        [samples for samples, _ in zip(turns_without_end(call_s), range(3), strict=False)] for call_s in (0.001, 0.1)
    )


def test_the_order_changes_with_the_round_and_follows_from_the_seed() -> None:
    """So that no compiler always runs behind the same other."""
    lanes = ["a", "b", "c", "d"]
    orders = [tuple(shuffled(lanes, 0, number)) for number in range(50)]

    assert len(set(orders)) > 10
    assert all(sorted(order) == lanes for order in orders)
    assert orders == [tuple(shuffled(lanes, 0, number)) for number in range(50)]
    assert {order[0] for order in orders} == set(lanes)
