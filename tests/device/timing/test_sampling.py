"""Timed calls, by a clock that the test moves."""

from __future__ import annotations

import gc

import pytest

from ngbkit.device.timing.sampling import SAMPLE_S, block_size, collector_off, sample


class Clock:
    """Stands still unless a call moves it."""

    def __init__(self) -> None:
        self.now = 0
        self.calls = 0

    def __call__(self) -> int:
        return self.now

    def run(self) -> None:
        self.calls += 1
        self.now += 1_000_000 * self.calls


def test_each_sample_is_one_call() -> None:
    """Durations are in nanoseconds, in the order of the calls, without those that settle."""
    clock = Clock()

    assert [3_000_000, 4_000_000, 5_000_000] == sample(clock.run, 3, settle=2, clock=clock)
    assert 5 == clock.calls


def test_a_block_is_one_sample() -> None:
    """The mean of its calls: of the second and third, and of the fourth and fifth."""
    clock = Clock()

    assert [2_500_000, 4_500_000] == sample(clock.run, 2, block=2, settle=1, clock=clock)


def test_another_clock_times_in_its_own_way() -> None:
    """It is given the block, and gives seconds a call; calls that settle are made by `run` all the same."""
    clock, blocks = Clock(), list[int]()

    def measure(calls: int) -> float:
        blocks.append(calls)
        return 0.25 * calls

    assert [0.5e9, 0.5e9, 0.5e9] == sample(clock.run, 3, block=2, settle=4, measure=measure)
    assert ([2, 2, 2], 4) == (blocks, clock.calls)


@pytest.mark.parametrize(("block", "expected"), [(1, [2_000_000, 3_000_000]), (2, [2_500_000, 4_500_000])])
def test_what_is_done_before_a_call_is_not_timed(block: int, expected: list[int]) -> None:
    """It comes before each call of a block, which are then timed one by one; none comes before those that settle."""
    clock, before = Clock(), list[int]()

    def empty() -> None:
        before.append(clock.calls)
        clock.now += 10**9

    assert pytest.approx(expected) == sample(clock.run, 2, block=block, settle=1, clock=clock, before=empty)
    assert list(range(1, 1 + 2 * block)) == before


def test_another_clock_is_told_of_each_call_by_itself_where_something_comes_before() -> None:
    """Or all but the first call of a block would find what the first one left."""
    order: list[object] = []

    def measure(calls: int) -> float:
        order.append(calls)
        return 1e-9 * len(order)

    assert pytest.approx([3, 7]) == sample(lambda: None, 2, block=2, measure=measure, before=lambda: order.append("b"))
    assert ["b", 1, "b", 1] * 2 == order


@pytest.mark.parametrize(("call_s", "calls"), [(SAMPLE_S * 2, 1), (SAMPLE_S, 1), (SAMPLE_S / 2.5, 3), (0.0, 1)])
def test_only_short_calls_are_timed_in_blocks(call_s: float, calls: int) -> None:
    """A clock that saw nothing pass says nothing about how many calls a block needs."""
    assert calls == block_size(call_s)


def test_the_collector_is_off_within_and_as_before_afterwards() -> None:
    """Also where it had been off before."""
    seen = []
    sample(lambda: seen.append(gc.isenabled()), 1)
    sample(lambda: seen.append(gc.isenabled()), 1, block=2)
    sample(lambda: None, 1, measure=lambda _: 1.0, before=lambda: seen.append(gc.isenabled()))
    after = gc.isenabled()
    gc.disable()
    try:
        with collector_off():
            pass
        off = gc.isenabled()
    finally:
        gc.enable()

    assert ([False] * 4, True, False) == (seen, after, off)
