"""Timed calls, by a clock that the test moves."""

from __future__ import annotations

import gc

import pytest

from ngbkit.timing.sampling import SAMPLE_S, block_size, collector_off, sample


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


@pytest.mark.parametrize(("call_s", "calls"), [(SAMPLE_S * 2, 1), (SAMPLE_S, 1), (SAMPLE_S / 2.5, 3), (0.0, 1)])
def test_only_short_calls_are_timed_in_blocks(call_s: float, calls: int) -> None:
    """A clock that saw nothing pass says nothing about how many calls a block needs."""
    assert calls == block_size(call_s)


def test_the_collector_is_off_within_and_as_before_afterwards() -> None:
    """Also where it had been off before."""
    seen = []
    sample(lambda: seen.append(gc.isenabled()), 1)
    sample(lambda: seen.append(gc.isenabled()), 1, block=2)
    after = gc.isenabled()
    gc.disable()
    try:
        with collector_off():
            pass
        off = gc.isenabled()
    finally:
        gc.enable()

    assert ([False] * 3, True, False) == (seen, after, off)
