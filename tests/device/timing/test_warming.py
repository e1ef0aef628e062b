"""Warm-up, by a clock that the test moves: it ends when calls no longer get faster."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import count

import pytest

from ngbkit.device.timing.warming import MOST_S, WINDOW_CALLS, WINDOW_S, WarmUp, warm_up


def warmed(call_s: Callable[[int], float]) -> WarmUp:
    """The warm-up of calls that take so long, by their number from 0 up."""
    now, numbers = [0], count()

    def run() -> None:
        now[0] += round(call_s(next(numbers)) * 1e9)

    return warm_up(run, clock=lambda: now[0])


def test_calls_that_are_steady_take_two_windows() -> None:
    """One to know how long a call takes, and one to see that it stays so."""
    assert WarmUp(calls=2 * WINDOW_CALLS, spent_s=pytest.approx(0.3), call_s=0.05, steady=True) == warmed(
        lambda _: 0.05
    )


def test_calls_that_get_faster_are_waited_for() -> None:
    """Ten slow ones, each faster than the last, and then they stay as they are."""
    warm = warmed(lambda number: 0.05 + 0.02 * max(0, 10 - number))

    assert (True, 0.05) == (warm.steady, pytest.approx(warm.call_s))
    assert warm.calls > 10


def test_noise_is_not_taken_for_warming_up() -> None:
    """A window whose median lies within what the one before it saw is no faster, and neither is one by 1 %."""
    noisy = warmed(lambda number: 0.05 * (1.0, 1.3, 0.9)[number % 3])
    slightly = warmed(lambda number: 0.05 if number < WINDOW_CALLS else 0.0495)

    assert (2 * WINDOW_CALLS, 2 * WINDOW_CALLS) == (noisy.calls, slightly.calls)


def test_short_calls_fill_their_windows() -> None:
    """Three calls of a microsecond would say nothing."""
    assert pytest.approx(2 * WINDOW_S, rel=0.01) == warmed(lambda _: 1e-5).spent_s


def test_a_call_longer_than_a_window_is_made_once() -> None:
    """Its warm-up was the first call, which is made before."""
    assert WarmUp(calls=1, spent_s=3.0, call_s=3.0, steady=True) == warmed(lambda _: 3.0)


def test_what_never_gets_steady_is_given_up_and_said_to_be_so() -> None:
    """Each call is a twentieth faster than the last, and long enough that patience ends first."""
    warm = warmed(lambda number: 0.6 * 0.95**number)

    assert not warm.steady
    assert warm.spent_s >= MOST_S


def test_the_collector_is_off_meanwhile() -> None:
    """As it is when calls are timed."""
    seen: set[bool] = set()
    warm_up(lambda: seen.add(gc.isenabled()))

    assert ({False}, True) == (seen, gc.isenabled())
