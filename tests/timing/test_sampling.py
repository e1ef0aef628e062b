"""Timed calls, by a clock that the test moves."""

from __future__ import annotations

import gc

from ngbkit.timing.sampling import collector_off, sample, warm_up


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


def test_the_collector_is_off_within_and_as_before_afterwards() -> None:
    """Also where it had been off before."""
    seen = []
    sample(lambda: seen.append(gc.isenabled()), 1)
    after = gc.isenabled()
    gc.disable()
    try:
        with collector_off():
            pass
        off = gc.isenabled()
    finally:
        gc.enable()

    assert ([False], True, False) == (seen, after, off)


def test_warming_up_ends_by_time_or_by_count() -> None:
    """Whichever comes first, but not before the least."""
    by_time, by_count, at_least = Clock(), Clock(), Clock()

    assert 4 == len(warm_up(by_time.run, seconds=0.01, most=100, clock=by_time))
    assert 3 == len(warm_up(by_count.run, seconds=10, most=3, clock=by_count))
    assert 2 == len(warm_up(at_least.run, seconds=0, most=5, least=2, clock=at_least))
