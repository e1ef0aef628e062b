"""How often an interval covers the truth, of fixed rounds and where its own narrowness stopped the measurement.

``.venv/bin/python tests/benchmarks/stopping.py [fixed] [stopped]`` prints a table each; seeded, so that it prints the
same again. `ngbkit.device.timing.intervals` cites it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from statistics import NormalDist

import numpy as np

from ngbkit.device.timing import intervals

REPETITIONS = 20_000
CAP = 2000
CONTAMINATED, FACTOR = 0.1, 1.5

Draw = Callable[[np.random.Generator, float, tuple[int, int]], np.ndarray]


def normal(generator: np.random.Generator, deviation: float, shape: tuple[int, int]) -> np.ndarray:
    """Log ratios whose logarithm is normal."""
    return deviation * generator.standard_normal(shape)


def student(generator: np.random.Generator, deviation: float, shape: tuple[int, int]) -> np.ndarray:
    """Log ratios of heavy tails: Student's t with 3 degrees of freedom, with that standard deviation."""
    return deviation / math.sqrt(3) * generator.standard_t(3, shape)


def contaminated(generator: np.random.Generator, deviation: float, shape: tuple[int, int]) -> np.ndarray:
    """Log ratios a tenth of which are of rounds that took 1.5 times as long; less the median of that mixture."""
    return (
        normal(generator, deviation, shape)
        + math.log(FACTOR) * (generator.random(shape) < CONTAMINATED)
        - _mixture_median(deviation)
    )


def _mixture_median(deviation: float) -> float:
    part = NormalDist(0, deviation)
    low, high = -deviation, deviation + math.log(FACTOR)
    for _ in range(60):
        middle = (low + high) / 2
        share = (1 - CONTAMINATED) * part.cdf(middle) + CONTAMINATED * part.cdf(middle - math.log(FACTOR))
        low, high = (middle, high) if share < 0.5 else (low, middle)
    return low


DISTRIBUTIONS: dict[str, Draw] = {"normal": normal, "student": student, "contaminated": contaminated}


def fixed() -> None:
    """The 95 % interval of fixed rounds."""
    print("fixed rounds: share of intervals of 95 % that cover")
    print(f"{'rounds':>8s}" + "".join(f"{name:>14s}" for name in DISTRIBUTIONS))
    for rounds in (6, 8, 10, 11, 13, 20, 40, 100):
        shares = []
        for name, draw in DISTRIBUTIONS.items():
            generator = np.random.default_rng([rounds, len(name)])
            low, high = intervals.median_interval(draw(generator, 0.05, (REPETITIONS, rounds)), intervals.LEVEL)
            shares.append(np.mean((low <= 0) & (high >= 0)))
        print(f"{rounds:8d}" + "".join(f"{share:14.4f}" for share in shares), flush=True)


def stopped(repetitions: int = 10_000) -> None:
    """The interval where the rule of `--precision` stopped."""
    print(f"\nstopped by the rule, cap {CAP} rounds, {repetitions} repetitions a case")
    print(f"{'distribution':>14s}{'deviation':>11s}{'precision':>11s}{'coverage':>10s}{'median rounds':>15s}")
    for name, draw in DISTRIBUTIONS.items():
        for deviation in (0.02, 0.05, 0.1):
            for precision in (0.01, 0.02):
                generator = np.random.default_rng([len(name), round(deviation * 1000), round(precision * 1000)])
                covered, rounds = follow(draw, deviation, precision, repetitions, generator)
                print(f"{name:>14s}{deviation:11.2f}{precision:11.2f}{covered:10.4f}{rounds:15.0f}", flush=True)


def follow(
    draw: Draw, deviation: float, precision: float, repetitions: int, generator: np.random.Generator
) -> tuple[float, float]:
    """Follow the rule on many columns at once: the share of those that cover when it stops, and how long it took."""
    values = np.empty((repetitions, 0))
    rounds, looks, covered, lasted = 0, 0, 0, []
    while len(values):
        coming = min(intervals.next_look(rounds), CAP)
        values = np.hstack([values, draw(generator, deviation, (len(values), coming - rounds))])
        rounds, looks = coming, looks + 1
        low, high = intervals.median_interval(values, intervals.adjusted(intervals.LEVEL, looks))
        done = (intervals.half_width(values, looks) <= precision) | (rounds == CAP)
        covered += np.count_nonzero(done & (low <= 0) & (high >= 0))
        lasted += [rounds] * np.count_nonzero(done)
        values = values[~done]
    return covered / repetitions, float(np.median(lasted))


if __name__ == "__main__":
    for table in sys.argv[1:] or ["fixed", "stopped"]:
        {"fixed": fixed, "stopped": stopped}[table]()
