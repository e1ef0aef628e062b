"""The load of a test, and the rates of its trials."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
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
SHORT = 0.5
"""How long a calibrating trial takes, over one of a check."""

# How the rate of further trials moves where all kept the deadline, or none did.
_UP, _DOWN, _MOST_MOVES = 1.3, 0.7, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Requests to send at one rate, a second, for some seconds; whether they calibrate the simulation."""

    rate: float
    seconds: float
    calibrates: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The requests to serve; times in seconds."""

    # Requests per second that the server is expected to serve within its deadline.
    rate: float
    deadline: float
    quantile: float
    # How long each trial of a check lasts.
    seconds: float
    max_delay: float = 0.0
    seed: int = 0
    # The rates of the trials of a check, over the expected one; none only calibrates.
    factors: tuple[float, ...] = FACTORS

    def __post_init__(self) -> None:
        if self.rate * max(*self.factors, *CALIBRATION) * self.seconds > MOST_REQUESTS:
            raise UsageError(
                f"invalid load: got {self.rate:.0f} requests/s for {self.seconds:g} s a trial; expected at most "
                f"{MOST_REQUESTS:,} requests. Give fewer seconds."
            )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Load:
        return cls(**{**data, "factors": tuple(data["factors"])})

    def list_trials(self) -> list[Trial]:
        """The first trials, those of a check in shuffled order with a calibrating one before each.

        So the drift of a machine looks like no rate, and like no difference of the simulation from the check.
        """
        factors = list(self.factors)
        random.Random(f"{self.seed}/rates").shuffle(factors)
        calibrating = [
            Trial(rate=self.rate * factor, seconds=SHORT * self.seconds, calibrates=True) for factor in CALIBRATION
        ]
        checks = [Trial(rate=self.rate * factor, seconds=self.seconds) for factor in factors]
        if not checks:
            return calibrating
        return [trial for pair in zip(cycle(calibrating), checks, strict=False) for trial in pair]

    def choose_next(self, trials: Sequence[ServedTrial]) -> float | None:
        """The rate of one more trial, where all of a check so far keep the deadline, or none does; None otherwise."""
        checks = [trial for trial in trials if not trial.calibrates]
        keeping = [float(np.quantile(trial.latency_s, self.quantile)) <= self.deadline for trial in checks]
        rates = [trial.rate for trial in checks]
        if any(keeping) != all(keeping) or not 0 < len(checks) < len(self.factors) + _MOST_MOVES:
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
    # Whether it calibrates the simulation, and is no part of the check.
    calibrates: bool = False

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
