"""Change points of known truth: seeded gates whose rounds drift, and whose processes differ."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from ngbkit.metrics.draws import UNCHECKED_SD
from ngbkit.metrics.gates.change_points import (
    MOST_LOOKS,
    ChangePoints,
    Evidence,
    fit_change_points,
    judge_ends,
)

COUNT, ROUNDS, MARGIN, ERROR = 16, 20, 0.01, 0.05
INNER = range(1, COUNT - 1)


def measure(levels: Sequence[float], place: int | None, generator: np.random.Generator) -> Evidence:
    """A gate of releases at these levels: rounds drift by 30 %, samples scatter by 1 %, and processes differ."""
    common = generator.normal(0, 0.3, ROUNDS)
    places = [0, len(levels) - 1, *([] if place is None else [place])]
    first, *others = (
        common + levels[each] + generator.normal(0, 0.01, ROUNDS) + generator.normal(0, UNCHECKED_SD / math.sqrt(2))
        for each in places
    )
    # The variance of a median of normal values, and that between two processes.
    variance = math.pi / 2 * (2 * 0.01**2) / ROUNDS + UNCHECKED_SD**2
    size = len(others)
    return Evidence(
        place=place,
        log_ratios=tuple(float(np.median(other - first)) for other in others),
        covariance=variance / 2 * (np.eye(size) + np.ones((size, size))),
    )


def bisect(levels: Sequence[float], seed: int) -> tuple[str, tuple[int, ...], int]:
    """Bisect as the search does: the outcome, the releases that it names, and the number of gates."""
    generator = np.random.default_rng(seed)
    evidence: list[Evidence] = []
    verdict = "not conclusive"
    while verdict == "not conclusive" and len(evidence) < MOST_LOOKS:
        evidence.append(measure(levels, None, generator))
        verdict = judge_ends(evidence, MARGIN)
    while verdict == "slower":
        points = fit_change_points(evidence, len(levels), MARGIN)
        places, probability = points.find_likeliest(INNER)
        if probability >= 1 - ERROR:
            return "slower", places, len(evidence)
        if points.split_probability >= 1 - ERROR or len(evidence) > 20:
            return "several changes", (), len(evidence)
        probe = points.choose_probe(INNER)
        assert probe is not None
        evidence.append(measure(levels, probe, generator))
    return verdict, (), len(evidence)


def plant(seed: int, *steps: float) -> tuple[list[float], tuple[int, ...]]:
    """Plant steps at random releases among sixteen, not next to each other, beside true differences of a tenth."""
    generator = np.random.default_rng(1000 + seed)
    places = np.sort(generator.choice(np.arange(1, COUNT, 2), len(steps), replace=False))
    levels = generator.normal(0, 0.001, COUNT)
    for place, step in zip(places, steps, strict=True):
        levels[place:] += math.log1p(step)
    return levels.tolist(), tuple(places.tolist())


def test_a_planted_slowdown_is_found_by_five_gates() -> None:
    """A slowdown of 5 % in one of sixteen releases is found in 19 of 20 bisections, with five gates at most."""
    planted = [plant(seed, 0.05) for seed in range(20)]
    results = [bisect(levels, seed) for seed, (levels, _) in enumerate(planted)]
    right = [result[:2] == ("slower", places) for result, (_, places) in zip(results, planted, strict=True)]

    assert sum(right) >= 19
    assert sum(gates <= 5 for _, _, gates in results) >= 19


def test_no_slowdown_is_found_without_one() -> None:
    """Releases without a slowdown are no regression in 19 of 20 bisections, and only the ends are measured."""
    results = [bisect(plant(seed)[0], seed) for seed in range(20)]

    assert sum(outcome != "slower" for outcome, _, _ in results) >= 19
    assert sum(outcome == "not slower" for outcome, _, _ in results) >= 14
    assert max(gates for _, _, gates in results) <= MOST_LOOKS


def test_two_changes_are_not_reported_as_one() -> None:
    """Two slowdowns of half the size are said to be several in most bisections, and hardly ever one."""
    outcomes = [bisect(plant(seed, 0.025, 0.025)[0], seed)[0] for seed in range(20)]

    assert outcomes.count("several changes") >= 16
    assert outcomes.count("slower") <= 2


def fit(*gates: tuple[int | None, float]) -> ChangePoints:
    """Exact gates of a change of 5 % among eight releases, by the level of each probe as a share of the change."""
    change = math.log1p(0.05)
    evidence = [
        Evidence(
            place=place,
            log_ratios=(change,) if place is None else (change, level * change),
            covariance=1e-5 * np.eye(1 if place is None else 2),
        )
        for place, level in gates
    ]
    return fit_change_points(evidence, 8, MARGIN)


def test_the_first_probe_is_in_the_middle_and_the_next_in_the_open_half() -> None:
    """The probe halves the releases that may have the change."""
    assert 3 == fit((None, 1)).choose_probe(range(1, 7))
    assert 5 == fit((None, 1), (3, 0)).choose_probe(range(1, 7))
    assert 2 == fit((None, 1), (3, 1)).choose_probe(range(1, 7))
    assert 3 == fit((None, 1)).choose_probe([3, 6])
    assert fit((None, 1)).choose_probe([]) is None


def test_releases_that_cannot_be_measured_are_suspected_together() -> None:
    """The change is in either of two releases where the first of them could not be measured."""
    points = fit((None, 1), (3, 0), (5, 1))

    assert (4, 5) == points.find_likeliest([1, 2, 3, 5, 6])[0]
    assert points.find_likeliest([1, 2, 3, 5, 6])[1] > 0.95
    assert points.find_likeliest(range(1, 7))[1] < 0.95
    assert (4, 5) == points.find_credible(0.9)


def test_levels_and_the_slowdown_are_estimated_by_all_gates() -> None:
    """A probe has the level of an end or one between; the slowdown has an interval."""
    points = fit((None, 1), (2, 0), (4, 0.5), (5, 1), (4, 0.5))
    slowdown, low, high = points.estimate_slowdown()

    assert ["before", "between", "after"] == [points.find_level(place) for place in (2, 4, 5)]
    assert points.split_probability > 0.95
    assert slowdown == pytest.approx(1.05, abs=1e-3)
    assert 1.04 < low < slowdown < high < 1.06
