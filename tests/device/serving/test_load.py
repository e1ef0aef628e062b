"""The search for the highest rate of requests that is valid."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest

from ngbkit.device.serving.load import Load, LoadTest, find_bracket

LOAD = Load(deadline=0.05, quantile=0.9, seconds=2.0, limit=100.0)


def build_test(rate: float, valid: bool) -> LoadTest:
    return LoadTest(
        rate=rate,
        valid=valid,
        requests=100,
        late=0 if valid else 30,
        latency=0.04 if valid else 0.2,
        mean_latency=0.03,
        completed_per_s=rate,
        calls=50,
        busy=0.5,
        contended=False,
        loadgen="6.0.17",
    )


def search(is_valid: Callable[[float, int], bool]) -> list[LoadTest]:
    """The tests of a server that answers each rate as `is_valid` says, by the rate and the number of the test."""
    tests: list[LoadTest] = []
    while (rate := LOAD.choose_rate(tests)) is not None:
        tests.append(build_test(rate, is_valid(rate, len(tests))))
    return tests


@pytest.mark.parametrize("capacity", [5.0, 42.0, 75.0, 180.0])
def test_the_search_ends_near_the_highest_valid_rate(capacity: float) -> None:
    """The bracket contains it and is at most 10 % wide, and two tests confirm each of its ends."""
    tests = search(lambda rate, _: rate <= capacity)
    low, high = find_bracket(tests)

    assert low <= capacity <= high <= 1.1 * low
    assert [2, 2] == [sum(test.rate == end for test in tests) for end in (low, high)]
    assert len(tests) <= 12


@pytest.mark.parametrize("number", range(4))
def test_a_single_test_decides_nothing(number: int) -> None:
    """An invalid test of a rate that is kept has others of the same rate, and most of them decide."""
    low, high = find_bracket(search(lambda rate, current: rate <= 75.0 and current != number))

    assert low <= 75.0 <= high <= 1.1 * low


def test_a_server_that_is_always_late_has_no_capacity() -> None:
    """The search ends at a small share of the highest rate."""
    tests = search(lambda *_: False)

    assert 0 == find_bracket(tests)[0]
    assert tests[-1].rate < 5
    assert len(tests) < 10


def test_a_search_is_bounded() -> None:
    """A server that keeps the deadline at every rate is tested 16 times, and no upper end is known."""
    tests = search(lambda *_: True)

    assert (16, math.inf) == (len(tests), find_bracket(tests)[1])
    assert (0.0, math.inf) == find_bracket([])


def test_a_load_crosses_the_wire() -> None:
    """A device receives the load of the client; p90 needs 44 requests for a valid test, and p99 needs 459."""
    load = Load(deadline=0.05, quantile=0.99, seconds=2.0, limit=100.0)

    assert load == Load.from_json(json.loads(json.dumps(load.to_json())))
    assert [44, 459] == [LOAD.requests, load.requests]
