"""The load of a capacity: what a server must keep, the record of a test, and the rates of the search."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ngbkit.validation import Count, Line, Positive, PositiveCount, Seconds

# The rate of the first test, over the highest that full batches in a row reach.
_FIRST = 0.6
# How the rate moves while all tests are valid, or none is; and below which share of that highest rate it is 0.
_UP, _DOWN, _LOWEST = 1.4, 0.5, 0.05
# The search ends where the lowest invalid rate is at most so many times the highest valid one, or after so many tests.
RESOLUTION, _MOST_TESTS = 1.1, 16
# The tests of either rate by which it is known.
_CONFIRMED = 2
QUANTILES = (0.5, 0.9, 0.95, 0.97, 0.99, 0.999)
"""The quantiles of the latency that LoadGen reports."""

_DEADLINES = 20
# LoadGen calls a test valid if the deadline is kept with this confidence, for which it needs so many requests.
_CONFIDENCE = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTest:
    """The results of one test of LoadGen's Server scenario; times in seconds."""

    # The requests per second that LoadGen was to send.
    rate: Positive
    # LoadGen's verdict: enough requests kept the deadline that their share is known with a confidence of 99 %.
    valid: bool
    requests: PositiveCount
    # The requests that missed the deadline.
    late: Count
    # The quantile of the latency that the load asks for, from the scheduled time of a request to its answer.
    latency: Seconds
    mean_latency: Seconds
    completed_per_s: Seconds
    # The calls of the server, and the share of the time in which it made them.
    calls: PositiveCount
    busy: Seconds
    # Whether other work slowed it.
    contended: bool
    # The release of LoadGen.
    loadgen: Line


def find_bracket(tests: Iterable[LoadTest]) -> tuple[float, float]:
    """Find the highest rate whose tests are mostly valid, or 0, below the lowest whose tests mostly are not, or inf."""
    balance = _count_verdicts(tests)
    high = min((rate for rate, votes in balance.items() if votes < 0), default=math.inf)
    return max((rate for rate, votes in balance.items() if votes > 0 and rate < high), default=0.0), high


def _count_verdicts(tests: Iterable[LoadTest]) -> Counter[float]:
    """Count the valid tests of each rate, less the invalid ones."""
    balance = Counter[float]()
    for test in tests:
        balance[test.rate] += 1 if test.valid else -1
    return balance


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The requests to serve, each with one sample; times in seconds."""

    deadline: float
    # The share of the requests that must keep the deadline.
    quantile: float
    # The shortest duration of a test, unless 20 deadlines are longer.
    seconds: float
    # The requests per second of full batches in a row: the search begins below it.
    limit: float
    seed: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Load:
        return cls(**data)

    @property
    def duration(self) -> float:
        """The shortest duration of a test: a queue that grows slowly misses the deadline only after a while."""
        return max(self.seconds, _DEADLINES * self.deadline)

    @property
    def requests(self) -> int:
        """The fewest requests of a test: with fewer, none could be valid."""
        return math.ceil(math.log(1 - _CONFIDENCE) / math.log(self.quantile))

    def estimate_seconds(self, rate: float) -> float:
        """Estimate the duration of a test at a rate: a low one needs long for its requests."""
        return max(self.duration, self.requests / rate)

    def choose_rate(self, tests: Sequence[LoadTest]) -> float | None:
        """Choose the rate of the next test, by bisection; None if the highest valid rate is known, or after many."""
        low, high = find_bracket(tests)
        balance, counts = _count_verdicts(tests), Counter(test.rate for test in tests)
        open_rates = [rate for rate, votes in balance.items() if not votes and low < rate < high]
        if len(tests) >= _MOST_TESTS:
            return None
        if open_rates:
            return open_rates[0]
        if not low and math.isinf(high):
            return _FIRST * self.limit
        if math.isinf(high):
            return low * _UP
        if not low and high > _LOWEST * self.limit:
            return high * _DOWN
        if low and high > low * RESOLUTION:
            return math.sqrt(low * high)
        return next((rate for rate in (low, high) if rate and counts[rate] < _CONFIRMED), None)
