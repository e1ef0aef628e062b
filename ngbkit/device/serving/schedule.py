"""When the requests of a trial are sent: Poisson arrivals."""

from __future__ import annotations

import random


def draw_schedule(rate: float, seconds: float, seed: str) -> list[float]:
    """Draw Poisson arrivals at a rate, from 0 to `seconds`: one request at least."""
    generator = random.Random(seed)
    arrivals = [generator.expovariate(rate)]
    while arrivals[-1] < seconds:
        arrivals.append(arrivals[-1] + generator.expovariate(rate))
    return arrivals[:-1] or [seconds]
