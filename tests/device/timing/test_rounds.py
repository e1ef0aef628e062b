"""Rounds: the same turns for every compiler of a group, in an order that changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ngbkit.device.timing.rounds import count_settling_calls, plan_turns, repeat_turns, shuffle
from ngbkit.device.timing.sampling import SAMPLE_S, choose_block_size


@given(repeats=st.integers(1, 500), call_s=st.floats(1e-6, 10), min_rounds=st.integers(1, 40))
def test_the_turns_of_a_group_have_the_requested_samples(repeats: int, call_s: float, min_rounds: int) -> None:
    """Exactly that many, for any duration of a call, and in the minimum of rounds if the samples suffice."""
    turns = plan_turns(repeats, call_s, min_rounds)

    assert repeats == sum(turns)
    assert len(turns) >= min(repeats, min_rounds)


def test_few_samples_are_spread_over_rounds() -> None:
    """As many rounds as samples allow; and many samples do not share a few rounds."""
    assert ([2] * 10, [1, 1, 1], [8] * 12 + [4]) == tuple(plan_turns(repeats, 0.001, 10) for repeats in (20, 3, 100))


def test_a_short_call_settles_first_and_a_long_one_does_not() -> None:
    """Settling saves a few milliseconds of cold caches, which do not matter to a long call."""
    short = SAMPLE_S / 10

    assert (choose_block_size(short), 1, 0) == (
        count_settling_calls(short),
        count_settling_calls(0.1),
        count_settling_calls(2.0),
    )
    assert [1] * 100 == plan_turns(100, 2.0, 10)


def test_turns_of_a_stopping_rule_have_no_end() -> None:
    """Each has few samples, so that the stop can be early; a single short one would be too few."""
    assert ([4, 4, 4], [1, 1, 1]) == tuple(
        [samples for samples, _ in zip(repeat_turns(call_s), range(3), strict=False)] for call_s in (0.001, 0.1)
    )


def test_the_order_changes_with_the_round_and_follows_from_the_seed() -> None:
    """So that no compiler always runs after the same other one."""
    workers = ["a", "b", "c", "d"]
    orders = [tuple(shuffle(workers, 0, number)) for number in range(50)]

    assert len(set(orders)) > 10
    assert all(sorted(order) == workers for order in orders)
    assert orders == [tuple(shuffle(workers, 0, number)) for number in range(50)]
    assert {order[0] for order in orders} == set(workers)
