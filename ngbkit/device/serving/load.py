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

FACTORS = (0.8, 0.9, 1.0, 1.1, 1.2)
"""The rates of the trials of a check, over the rate that is expected."""
CALIBRATION = (0.5, 0.9)
"""Those of the trials that show how long calls take within a server, after a pause and in a row."""

# How the rate of further trials moves where all kept the deadline, or none did.
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
    # The rates of the trials, over the expected one; and whether others follow until one keeps the deadline and another
    # misses it.
    factors: tuple[float, ...] = FACTORS
    brackets: bool = True

    def __post_init__(self) -> None:
        if self.rate * max(self.factors) * self.seconds > MOST_REQUESTS:
            raise UsageError(
                f"invalid load: got {self.rate:.0f} requests/s for {self.seconds:g} s a trial; expected at most "
                f"{MOST_REQUESTS:,} requests. Give fewer seconds."
            )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Load:
        return cls(**{**data, "factors": tuple(data["factors"])})

    def list_rates(self) -> list[float]:
        """The rates of the first trials, in shuffled order, so that drift of the machine is not one of the rate."""
        rates = [self.rate * factor for factor in self.factors]
        random.Random(f"{self.seed}/rates").shuffle(rates)
        return rates

    def choose_next(self, trials: Sequence[ServedTrial]) -> float | None:
        """The rate of one more trial, where all so far keep the deadline, or none does; None where some do."""
        keeping = [float(np.quantile(trial.latency_s, self.quantile)) <= self.deadline for trial in trials]
        rates = [trial.rate for trial in trials]
        is_over = not self.brackets or len(trials) >= len(self.factors) + _MOST_MOVES
        if is_over or any(keeping) != all(keeping):
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
    # The requests of each call.
    batches: tuple[PositiveCount, ...]
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
        if sum(self.batches) != len(self.latency_s):
            raise UsageError(
                f"invalid trial: got {sum(self.batches)} requests in {len(self.batches)} calls; expected "
                f"{len(self.latency_s)}."
            )
