"""Timed calls, by a clock that the test moves."""

from __future__ import annotations

import gc

import pytest

from ngbkit.device.timing.sampling import SAMPLE_S, choose_block_size, disable_collector, sample


class Clock:
    """Advances only during a call."""

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
    """A sample is the mean of the calls of its block."""
    clock = Clock()

    assert [2_500_000, 4_500_000] == sample(clock.run, 2, block=2, settle=1, clock=clock)


def test_another_clock_times_in_its_own_way() -> None:
    """Another clock gets the block and returns seconds per call."""
    clock, blocks = Clock(), list[int]()

    def measure(calls: int) -> float:
        blocks.append(calls)
        return 0.25 * calls

    assert [0.5e9, 0.5e9, 0.5e9] == sample(clock.run, 3, block=2, settle=4, measure=measure)
    assert ([2, 2, 2], 4) == (blocks, clock.calls)


@pytest.mark.parametrize(("block", "expected"), [(1, [2_000_000, 3_000_000]), (2, [2_500_000, 4_500_000])])
def test_the_preparation_of_a_call_is_not_timed(block: int, expected: list[int]) -> None:
    """The preparation precedes each timed call and is not timed."""
    clock, before = Clock(), list[int]()

    def empty() -> None:
        before.append(clock.calls)
        clock.now += 10**9

    assert pytest.approx(expected) == sample(clock.run, 2, block=block, settle=1, clock=clock, prepare=empty)
    assert list(range(1, 1 + 2 * block)) == before


def test_inputs_change_before_each_call_and_a_call_is_inspected() -> None:
    """Calls of a block are then timed one by one; the call that is inspected comes before one of them, untimed."""
    clock, varied, inspected = Clock(), list[int](), list[object]()

    def run() -> int:
        clock.run()
        return clock.calls

    def vary() -> bool:
        varied.append(clock.calls)
        clock.now += 10**9
        return clock.calls == 3

    samples = sample(run, 2, block=2, settle=1, clock=clock, vary=vary, inspect=inspected.append)

    assert pytest.approx([2_500_000, 5_500_000]) == samples
    assert ([0, 1, 2, 3, 4, 5], [4]) == (varied, inspected)


def test_a_reading_of_the_clock_is_no_part_of_a_call() -> None:
    """A clock of which a reading takes 50 ns adds them to every call that is timed by itself."""
    now = [0]

    def clock() -> int:
        now[0] += 50
        return now[0]

    def run() -> None:
        now[0] += 1000

    assert [1000, 1000] == sample(run, 2, block=3, clock=clock, vary=lambda: None)


def test_another_clock_times_a_block_with_the_same_inputs() -> None:
    """Calls in a row follow each other without a wait: their inputs change from block to block."""
    order: list[object] = []
    sample(lambda: None, 2, block=3, measure=lambda calls: order.append(calls) or 1.0, vary=lambda: order.append("v"))

    assert ["v", 3, "v", 3] == order


def test_another_clock_times_each_prepared_call_separately() -> None:
    """Another clock times each call alone, after its preparation."""
    order: list[object] = []

    def measure(calls: int) -> float:
        order.append(calls)
        return 1e-9 * len(order)

    assert pytest.approx([3, 7]) == sample(lambda: None, 2, block=2, measure=measure, prepare=lambda: order.append("b"))
    assert ["b", 1, "b", 1] * 2 == order


@pytest.mark.parametrize(("call_s", "calls"), [(SAMPLE_S * 2, 1), (SAMPLE_S, 1), (SAMPLE_S / 2.5, 3), (0.0, 1)])
def test_only_short_calls_are_timed_in_blocks(call_s: float, calls: int) -> None:
    """A duration of 0 gives a block of one call."""
    assert calls == choose_block_size(call_s)


def test_the_collector_is_off_within_the_block_only() -> None:
    """If it was off before, it stays off."""
    states = []
    sample(lambda: states.append(gc.isenabled()), 1)
    sample(lambda: states.append(gc.isenabled()), 1, block=2)
    sample(lambda: None, 1, measure=lambda _: 1.0, prepare=lambda: states.append(gc.isenabled()))
    after = gc.isenabled()
    gc.disable()
    try:
        with disable_collector():
            pass
        off = gc.isenabled()
    finally:
        gc.enable()

    assert ([False] * 4, True, False) == (states, after, off)
