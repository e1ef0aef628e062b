"""Measures how often an interval covers the truth: of fixed rounds, stopped by its own width, and of a race.

``.venv/bin/python tests/bench/stopping.py [fixed] [correlated] [stopped] [race]`` prints a table each; it is seeded, so
that its output is reproducible. `ngbkit.device.timing.intervals` and `…correlation` cite it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from itertools import pairwise, product

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.stats import norm

from ngbkit.device.timing import correlation, intervals, normal

REPETITIONS = 20_000
CAP = 2000
# A race: the deviation of a ratio from round to round, and the most rounds.
RACE_DEVIATION, RACE_CAP = 0.05, 100
CONTAMINATED, FACTOR = 0.1, 1.5

Draw = Callable[[np.random.Generator, float, tuple[int, int]], np.ndarray]


def draw_normal(generator: np.random.Generator, deviation: float, shape: tuple[int, int]) -> np.ndarray:
    """Draw normal log ratios."""
    return deviation * generator.standard_normal(shape)


def draw_student(generator: np.random.Generator, deviation: float, shape: tuple[int, int]) -> np.ndarray:
    """Draw log ratios with heavy tails: Student's t with 3 degrees of freedom, with that standard deviation."""
    return deviation / math.sqrt(3) * generator.standard_t(3, shape)


def draw_contaminated(generator: np.random.Generator, deviation: float, shape: tuple[int, int]) -> np.ndarray:
    """Draw log ratios of which a tenth are from rounds 1.5 times as long, less the median of that mixture."""
    return np.asarray(
        draw_normal(generator, deviation, shape)
        + math.log(FACTOR) * (generator.random(shape) < CONTAMINATED)
        - _compute_mixture_median(deviation)
    )


def _compute_mixture_median(deviation: float) -> float:
    def compute_excess(value: float) -> float:
        shares = norm.cdf([value, value - math.log(FACTOR)], 0, deviation)
        return float(np.dot(shares, [1 - CONTAMINATED, CONTAMINATED]) - 0.5)

    return float(brentq(compute_excess, -deviation, deviation + math.log(FACTOR)))


DISTRIBUTIONS: dict[str, Draw] = {"normal": draw_normal, "student": draw_student, "contaminated": draw_contaminated}


def print_fixed() -> None:
    """Print the coverage of the 95 % interval of fixed rounds."""
    table = pd.DataFrame(index=pd.Index((6, 8, 10, 11, 13, 20, 40, 100), name="rounds"))
    for name, draw in DISTRIBUTIONS.items():
        for rounds in table.index:
            logs = draw(np.random.default_rng([rounds, len(name)]), 0.05, (REPETITIONS, rounds))
            low, high = intervals.compute_median_interval(logs, normal.LEVEL)
            table.loc[rounds, name] = np.mean((low <= 0) & (high >= 0))
    print(f"fixed rounds: share of intervals of 95 % that cover\n{table.round(4)}")


def print_correlated(repetitions: int = 9_600) -> None:
    """Print how often an interval misses the truth, where rounds resemble those before them, by the series of a run.

    The last column is of a series among 11 that are independent, and so unlike it.
    """
    counts = (1, 2, 6, 12, 48)
    print("\ncorrelated rounds: share of intervals of 95 % that miss the truth, and how much wider they are")
    heads = [*(f"{count} series" for count in counts), "unlike 11"]
    print(f"{'rounds':>8s}{'correlation':>13s}" + "".join(f"{head:>14s}" for head in heads))
    for rounds in (6, 10, 20, 30):
        for strength in (0.0, 0.15, 0.3, 0.5, 0.8):
            generator = np.random.default_rng([rounds, round(100 * strength)])
            logs = draw_normal(generator, 0.02, (repetitions, rounds))
            for last, values in pairwise(logs.T):
                values *= math.sqrt(1 - strength**2)
                values += strength * last
            pools = [
                np.repeat([correlation.pool_series(run) for run in logs.reshape(-1, count, rounds)], count, axis=0)
                for count in counts
            ]
            others = generator.standard_normal((repetitions, 11, rounds))
            pools.append(
                np.array([correlation.pool_series([series, *rest]) for series, rest in zip(logs, others, strict=True)])
            )
            cells = [_describe_misses(logs, pool) for pool in pools]
            print(f"{rounds:8d}{strength:13.2f}" + "".join(f"{cell:>14s}" for cell in cells), flush=True)


def _describe_misses(logs: np.ndarray, pool: np.ndarray) -> str:
    """Describe how many intervals miss 0, and how much wider they are on average than of independent rounds."""
    low, high = intervals.compute_median_interval(logs, normal.LEVEL)
    center, factor = np.median(logs, axis=1), correlation.estimate_inflation(logs, pool)
    missed = (center - factor * (center - low) > 0) | (center + factor * (high - center) < 0)
    return f"{100 * missed.mean():.1f} % {factor.mean():.2f}"


def print_stopped(repetitions: int = 10_000) -> None:
    """Print the coverage of the interval where the rule of `--precision` stopped."""
    rows = []
    for (name, draw), deviation, precision in product(DISTRIBUTIONS.items(), (0.02, 0.05, 0.1), (0.01, 0.02)):
        generator = np.random.default_rng([len(name), round(deviation * 1000), round(precision * 1000)])
        covered, rounds = simulate_rule(draw, deviation, precision, repetitions, generator)
        rows.append((name, deviation, precision, covered, rounds))
    columns = ["distribution", "deviation", "precision", "coverage", "median rounds"]
    print(f"stopped by the rule, cap {CAP} rounds, {repetitions} repetitions a case")
    print(pd.DataFrame(rows, columns=columns).round(4).to_string(index=False))


def simulate_rule(
    draw: Draw, deviation: float, precision: float, repetitions: int, generator: np.random.Generator
) -> tuple[float, float]:
    """Simulate the rule on many columns at once; return the share that covers when it stops, and the median rounds."""
    values = np.empty((repetitions, 0))
    rounds, looks, covered, durations = 0, 0, 0, []
    while len(values):
        next_rounds = min(intervals.schedule_next_look(rounds), CAP)
        values = np.hstack([values, draw(generator, deviation, (len(values), next_rounds - rounds))])
        rounds, looks = next_rounds, looks + 1
        low, high = intervals.compute_median_interval(values, intervals.adjust_level(normal.LEVEL, looks))
        stopped_ = (intervals.compute_half_width(values, looks) <= precision) | (rounds == CAP)
        covered += int(np.count_nonzero(stopped_ & (low <= 0) & (high >= 0)))
        durations += [rounds] * np.count_nonzero(stopped_)
        values = values[~stopped_]
    return covered / repetitions, float(np.median(durations))


def print_race(repetitions: int = 2_000) -> None:
    """Print how often the fastest loses a race, the coverage of its intervals, and the share of all rounds it takes.

    The compilers are each slower than the one before by as much.
    """
    rows = []
    cases = ((2, 0.005), (2, 0.05), (4, 0.005), (4, 0.02), (6, 0.02), (6, 0.1))
    for (name, draw), (compilers, step) in product(DISTRIBUTIONS.items(), cases):
        generator = np.random.default_rng([len(name), compilers, round(step * 1000)])
        rows.append((name, compilers, step, *simulate_race(draw, compilers, step, repetitions, generator)))
    columns = ["distribution", "compilers", "step", "lost", "coverage", "share"]
    print(f"race, deviation {RACE_DEVIATION}, {repetitions} repetitions a case, cap {RACE_CAP} rounds")
    print(pd.DataFrame(rows, columns=columns).round(4).to_string(index=False))


def simulate_race(
    draw: Draw, compilers: int, step: float, repetitions: int, generator: np.random.Generator
) -> tuple[float, float, float]:
    """Simulate races; return the shares of lost races, of intervals that cover, and of rounds."""
    lost = covered = count = rounds_in_total = 0
    for _ in range(repetitions):
        # A ratio of two compilers has the given deviation.
        logs = (
            draw(generator, RACE_DEVIATION / math.sqrt(2), (compilers, RACE_CAP)) + step * np.arange(compilers)[:, None]
        )
        active, ends, rounds, looks = list(range(compilers)), dict[int, int](), 0, 0
        while len(active) > 1 and rounds < RACE_CAP:
            rounds, looks = min(intervals.schedule_next_look(rounds), RACE_CAP), looks + 1
            fastest = min(active, key=lambda index: np.median(logs[index, :rounds]))
            low, _ = intervals.compute_race_interval(logs[active, :rounds] - logs[fastest, :rounds])
            slower = [index for index, bound in zip(active, low, strict=True) if bound > 0 and index != fastest]
            ends |= dict.fromkeys(slower, rounds)
            active = [index for index in active if index not in slower]
        ends |= dict.fromkeys(active, rounds)
        lost += 0 not in active and step > 0
        rounds_in_total += sum(ends.values())
        level = intervals.adjust_level(normal.LEVEL, looks)
        for index in range(1, compilers):
            shared = min(ends[0], ends[index])
            low, high = intervals.compute_median_interval(logs[index, :shared] - logs[0, :shared], level)
            covered += bool(low <= step * index <= high)
            count += 1
    return lost / repetitions, covered / count, rounds_in_total / (repetitions * compilers * RACE_CAP)


TABLES = {"fixed": print_fixed, "correlated": print_correlated, "stopped": print_stopped, "race": print_race}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", default=list(TABLES), metavar="TABLE", help=f"of {', '.join(TABLES)}")
    for table in parser.parse_args().tables:
        TABLES[table]()
