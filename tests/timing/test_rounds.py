"""Rounds: the same turns for every compiler of a group, in an order that changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ngbkit.timing.rounds import plan_turns, settling_calls, shuffled


@given(repeats=st.integers(1, 500), call_s=st.floats(1e-6, 10))
def test_the_turns_of_a_group_take_as_many_samples_as_asked(repeats: int, call_s: float) -> None:
    """No more and no fewer, whatever a call takes."""
    assert repeats == sum(plan_turns(repeats, call_s))


def test_few_samples_are_spread_over_rounds_all_the_same() -> None:
    """At least five rounds, as far as there are samples."""
    assert ([2] * 5, [1, 1, 1]) == (plan_turns(10, 0.001), plan_turns(3, 0.001))


def test_a_short_call_settles_first_and_a_long_one_does_not() -> None:
    """What settling gives back is a few milliseconds of cold caches; a long call would not notice."""
    assert ([5] * 20, 1) == (plan_turns(100, 0.001), settling_calls(0.001))
    assert ([1] * 100, 0) == (plan_turns(100, 2.0), settling_calls(2.0))


def test_the_order_changes_with_the_round_and_follows_from_the_seed() -> None:
    """So that no compiler always runs behind the same other."""
    lanes = ["a", "b", "c", "d"]
    orders = [tuple(shuffled(lanes, 0, number)) for number in range(50)]

    assert len(set(orders)) > 10
    assert all(sorted(order) == lanes for order in orders)
    assert orders == [tuple(shuffled(lanes, 0, number)) for number in range(50)]
    assert {order[0] for order in orders} == set(lanes)
