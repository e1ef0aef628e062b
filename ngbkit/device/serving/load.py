"""The load of a test, and the rates of its trials."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ngbkit.errors import UsageError
from ngbkit.sweep.schema import Positive, PositiveCount, Seconds

MOST_REQUESTS = 100_000
"""The most requests of a trial: their latencies cross the wire."""

# The first trials, over the rate that is expected, and how the rate of further ones moves where all kept the deadline,
# or none did.
_FACTORS = (0.8, 0.9, 1.0, 1.1, 1.2)
_UP, _DOWN, _MOST_MOVES = 1.3, 0.7, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The requests to serve; times in seconds."""

    # Requests per second that the server is expected to serve within its deadline.
    rate: float
    deadline: float
    quantile: float
    # How long each trial lasts.
    seconds: float
    max_delay: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rate * max(_FACTORS) * self.seconds > MOST_REQUESTS:
            raise UsageError(
                f"invalid load: got {self.rate:.0f} requests/s for {self.seconds:g} s a trial; expected at most "
                f"{MOST_REQUESTS:,} requests. Give fewer seconds."
            )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Load:
        return cls(**data)

    def list_rates(self) -> list[float]:
        """The rates of the first trials, in shuffled order, so that drift of the machine is not one of the rate."""
        rates = [self.rate * factor for factor in _FACTORS]
        random.Random(f"{self.seed}/rates").shuffle(rates)
        return rates

    def choose_next(self, trials: Sequence[ServedTrial]) -> float | None:
        """The rate of one more trial, where all so far keep the deadline, or none does; None where some do."""
        keeping = [float(np.quantile(trial.latency_s, self.quantile)) <= self.deadline for trial in trials]
        rates = [trial.rate for trial in trials]
        if any(keeping) != all(keeping) or len(trials) >= len(_FACTORS) + _MOST_MOVES:
            return None
        rate = max(rates) * _UP if all(keeping) else min(rates) * _DOWN
        return rate if rate * self.seconds <= MOST_REQUESTS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTrial:
    """What one trial leaves behind: its requests, in the order in which they arrived; times in seconds."""

    # Requests per second, and for how long.
    rate: Positive
    seconds: Positive
    # The schedule, and from there to the completion of each request.
    arrivals_s: tuple[Seconds, ...]
    latency_s: tuple[Seconds, ...]
    calls: PositiveCount
    busy_s: Seconds
    # How late the generator sent 99 % of its requests at most, and what it used of the CPU.
    lag_s: Seconds
    generator_cpu_s: Seconds
    # Whether other work disturbed it.
    disturbed: bool

    def __post_init__(self) -> None:
        if not 0 < len(self.latency_s) == len(self.arrivals_s) <= 2 * MOST_REQUESTS:
            raise UsageError(
                f"invalid trial: got {len(self.latency_s)} latencies of {len(self.arrivals_s)} requests; expected one "
                "each."
            )
