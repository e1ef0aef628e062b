"""Alarms of a gate: their family-wise error, what they find, and what they leave open."""

from __future__ import annotations

import numpy as np
import pytest

from ngbkit.device.timing import correlation, intervals
from ngbkit.metrics.gates import gate
from ngbkit.metrics.gates.gate import judge
from ngbkit.metrics.statistics import adjust_by_holm

RUNS = 400


def simulate(trials: int, rounds: int, slowdown: float, seed: int, margin: float, tails: bool = False) -> np.ndarray:
    """Verdicts, ``(runs, trials)``, of rounds whose logarithms deviate by 2 %, as of an interval of their median."""
    generator = np.random.default_rng(seed)
    shape = (RUNS * trials, rounds)
    noise = generator.standard_t(3, shape) / np.sqrt(3) if tails else generator.standard_normal(shape)
    logs = np.log1p(slowdown) + 0.02 * noise
    low, high = intervals.compute_median_interval(logs, 0.95)
    center, factor = np.median(logs, axis=1), correlation.estimate_inflation(logs)
    ends = [np.exp(center + factor * (end - center)) for end in (low, high)]
    cells = [values.reshape(RUNS, trials) for values in (np.exp(center), *ends)]
    return np.array(
        [
            judge(*(cell[run] for cell in cells), level=0.95, rounds=rounds, conclusive=np.ones(trials), margin=margin)
            for run in range(RUNS)
        ]
    )


@pytest.mark.parametrize("tails", [False, True])
@pytest.mark.parametrize(("trials", "rounds"), [(1, 10), (1, 20), (8, 20), (40, 10), (40, 20), (40, 40)])
def test_any_false_alarm_is_rare(trials: int, rounds: int, tails: bool) -> None:
    """At most 5 % of runs have an alarm if trials are slower by exactly the margin."""
    verdicts = simulate(trials, rounds, slowdown=0.02, seed=trials + rounds, margin=0.02, tails=tails)

    share = (verdicts == "slower").any(axis=1).mean()
    assert share <= 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / RUNS)


def test_single_intervals_would_alarm_falsely() -> None:
    """Most runs of 40 unchanged trials have a false alarm if Holm's procedure is off."""
    verdicts = simulate(1, 20, slowdown=0.0, seed=0, margin=0.0).reshape(-1, 40)

    assert (verdicts == "slower").any(axis=1).mean() > 0.5


def test_a_planted_regression_is_an_alarm() -> None:
    """Nearly every run reports a planted regression of 5 % in one trial."""
    verdicts = simulate(1, 20, slowdown=0.05, seed=1, margin=0.02)

    assert (verdicts == "slower").mean() > 0.95
    assert "not slower" not in verdicts


def test_what_is_unchanged_passes() -> None:
    """An unchanged trial is not slower far below the margin, and rarely sure near it."""
    unchanged = simulate(1, 40, slowdown=0.0, seed=2, margin=0.02)
    near = simulate(1, 40, slowdown=0.02, seed=3, margin=0.02)

    assert (unchanged == "not slower").mean() > 0.95
    assert (near == "not slower").mean() < 0.08
    assert (near == "not conclusive").mean() > 0.85


def test_contended_trials_and_those_without_an_interval_are_not_conclusive() -> None:
    """Neither is an alarm, however slow it seems, and neither weakens the tests of the others."""
    many = [1.5] * 3 + [np.nan] * 200
    verdicts = judge(
        many, [1.45] * 2 + [1.5] + [np.nan] * 200, [1.55] * 2 + [1.5] + [np.nan] * 200,
        level=0.95, rounds=20, conclusive=[True, False, *[True] * 201],
    )  # fmt: skip

    assert ["slower", "not conclusive", "not conclusive"] == verdicts[:3].tolist()
    assert {"not conclusive"} == set(verdicts[3:])


def test_holm_adjusts_from_the_smallest() -> None:
    """Holm's procedure gives the adjusted values of a textbook's example."""
    assert [0.03, 0.06, 0.06, 0.02] == pytest.approx(adjust_by_holm([0.01, 0.04, 0.03, 0.005]).tolist())
    assert [] == adjust_by_holm([]).tolist()


def test_the_verdicts_are_those_of_the_type() -> None:
    """The verdicts are those of the type, with the worst first."""
    assert ("slower", "failed", "not conclusive", "not judged", "not slower") == gate.VERDICTS
