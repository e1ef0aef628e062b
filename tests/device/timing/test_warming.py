"""Warm-up, by a clock that the test moves: it ends when calls no longer get faster."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import count

import pytest

from ngbkit.device.timing.warming import MOST_S, WINDOW_CALLS, WINDOW_S, WarmUp, warm_up


def warm_up_calls(call_s: Callable[[int], float]) -> WarmUp:
    """Warm up calls of the given durations, by their number from 0."""
    now, numbers = [0], count()

    def run() -> None:
        now[0] += round(call_s(next(numbers)) * 1e9)

    return warm_up(run, clock=lambda: now[0])


def test_calls_that_are_steady_take_two_windows() -> None:
    """Steady calls need two windows: one measures a call, and one confirms it."""
    assert WarmUp(calls=2 * WINDOW_CALLS, spent_s=pytest.approx(0.3), call_s=0.05, steady=True) == warm_up_calls(
        lambda _: 0.05
    )


def test_calls_that_get_faster_are_waited_for() -> None:
    """The warm-up continues while calls become faster."""
    warm = warm_up_calls(lambda number: 0.05 + 0.02 * max(0, 10 - number))

    assert (True, 0.05) == (warm.steady, pytest.approx(warm.call_s))
    assert warm.calls > 10


def test_noise_does_not_count_as_warming_up() -> None:
    """A window whose median lies within the previous window is no faster, and neither is one by 1 %."""
    noisy = warm_up_calls(lambda number: 0.05 * (1.0, 1.3, 0.9)[number % 3])
    slightly = warm_up_calls(lambda number: 0.05 if number < WINDOW_CALLS else 0.0495)

    assert (2 * WINDOW_CALLS, 2 * WINDOW_CALLS) == (noisy.calls, slightly.calls)


def test_short_calls_fill_their_windows() -> None:
    """Three calls of a microsecond would not be enough."""
    assert pytest.approx(2 * WINDOW_S, rel=0.01) == warm_up_calls(lambda _: 1e-5).spent_s


def test_a_call_longer_than_a_window_is_made_once() -> None:
    """The earlier first call was its warm-up."""
    assert WarmUp(calls=1, spent_s=3.0, call_s=3.0, steady=True) == warm_up_calls(lambda _: 3.0)


def test_calls_that_never_get_steady_are_given_up() -> None:
    """Each call is a twentieth faster than the last, until the time limit."""
    warm = warm_up_calls(lambda number: 0.6 * 0.95**number)

    assert not warm.steady
    assert warm.spent_s >= MOST_S


def test_the_collector_is_off_during_warm_up() -> None:
    """The garbage collector is off during warm-up and on afterwards."""
    states: set[bool] = set()
    warm_up(lambda: states.add(gc.isenabled()))

    assert ({False}, True) == (states, gc.isenabled())
