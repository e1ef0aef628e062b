"""What groups whose true speed-up is 1 say, held against what they were drawn from."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ngbkit.runs.selfcheck import estimates

ROUNDS, ROUND_SD = 20, 0.02


def draw(groups: int, process_sd: float, seed: int = 0) -> list[np.ndarray]:
    """Log ratios of groups, each with an offset of its own."""
    generator = np.random.default_rng(seed)
    offsets = generator.normal(0, process_sd, groups)
    return [offset + generator.normal(0, ROUND_SD, ROUNDS) for offset in offsets]


@pytest.mark.parametrize("process_sd", [0.01, 0.03, 0.1])
def test_what_processes_differ_by_is_told_from_what_rounds_do(process_sd: float) -> None:
    """Also where it is as small as the error of a group's own median."""
    found = estimates.process_sd(draw(1000, process_sd))

    assert process_sd == pytest.approx(found, rel=0.1)


def test_processes_that_are_alike_differ_by_next_to_nothing() -> None:
    """Not by the error of a group's own median, which their estimates scatter by."""
    scatter = float(np.std([np.median(ratios) for ratios in draw(1000, 0.0)]))

    assert estimates.process_sd(draw(1000, 0.0)) < scatter / 3


def test_one_group_far_out_does_not_decide() -> None:
    """It counts as one at three robust standard deviations."""
    groups = draw(100, 0.01)
    groups[7] = groups[7] + 2.0

    assert estimates.process_sd(groups) < 0.02


def test_single_rounds_tell_nothing() -> None:
    """There is no half to hold another half against."""
    assert 0.0 == estimates.process_sd([np.array([0.5]), np.array([])])


def test_rounds_and_drift_are_robust() -> None:
    """The one is that of a normal distribution; the other leaves the outermost tenths out."""
    latency = [1.0] + [2.0] * 9 + [3.0] * 9 + [50.0]

    assert pytest.approx(ROUND_SD, rel=0.15) == estimates.round_sd(draw(400, 0.1))
    assert pytest.approx(0.5) == estimates.drift(latency)


@pytest.mark.parametrize(
    ("hits", "of", "interval"), [(0, 10, (0.0, 0.278)), (10, 10, (0.722, 1.0)), (81, 263, (0.255, 0.366))]
)
def test_a_share_has_wilsons_interval(hits: int, of: int, interval: tuple[float, float]) -> None:
    """The last is the example of Newcombe (1998), table I."""
    rate, *ends = estimates.share(hits, of)

    assert hits / of == rate
    assert interval == pytest.approx(tuple(ends), abs=1e-3)


def test_a_share_of_nothing_is_not_known() -> None:
    """Nor is its interval."""
    assert all(math.isnan(value) for value in estimates.share(0, 0))
