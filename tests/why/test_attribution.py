"""The time of each piece in two runtimes, with intervals, and the pieces that surely differ."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from profiled import FUSED, NODES, SPLIT, build_profile

from ngbkit.errors import MetricError
from ngbkit.why.attribution import Attribution, attribute, estimate_process_sd
from ngbkit.why.pieces import BETWEEN, COPIES, Piece, cut
from ngbkit.why.trial_profile import TrialProfile, parse_profile

CASES = 20
CALL_S = 12e-3 + 4 * 8e-4 + 2e-4


def parse(runtime: str, seed: int = 0, **more: Any) -> TrialProfile:
    return parse_profile(json.dumps(build_profile(runtime, seed, **more)))


def compare(first: TrialProfile, second: TrialProfile) -> tuple[list[Piece], Attribution]:
    pieces = cut([first, second])
    return pieces, attribute([first, second], pieces)


def test_pieces_sum_to_the_gap() -> None:
    """The gaps of all pieces sum to that of whole calls, copies and the time between kernels included."""
    first, second = parse(FUSED, copies=1e-4, noise=0), parse(SPLIT, 1, noise=0)
    pieces, result = compare(first, second)

    is_kept = ~(first.is_outlying | second.is_outlying)
    assert result.total == pytest.approx(float((second.plain - first.plain)[is_kept].mean()))
    assert [COPIES, BETWEEN] == [piece.name for piece in pieces[-2:]]
    assert result.gaps[-2] == pytest.approx(-1e-4, rel=0.1)


def test_the_cost_of_a_profiler_is_taken_out() -> None:
    """A profiler that costs three microseconds in a kernel changes no piece by more than a few tenths of that."""
    plain, costly = (compare(parse(FUSED, cost=cost), parse(SPLIT, 1, cost=cost))[1] for cost in (0.0, 3e-6))

    assert np.abs(plain.gaps - costly.gaps)[:-1].max() < 1e-6


def test_a_planted_slowdown_is_ranked_first() -> None:
    """A node that makes its call a fifth longer is the piece with the largest gap, and guilty, in 19 of 20 cases."""
    ranked = 0
    for seed in range(CASES):
        node = int(np.random.default_rng(seed).integers(len(NODES)))
        first = parse(SPLIT, 2 * seed, process=0.02)
        second = parse(SPLIT, 2 * seed + 1, process=0.02, slow={node: 0.2 * CALL_S})
        pieces, result = compare(first, second)
        worst = int(np.argmax(result.gaps))
        ranked += worst == node and bool(result.is_guilty[worst])
        assert len(pieces) == len(NODES) + 1

    assert ranked >= CASES - 1


def test_no_piece_of_a_copy_is_guilty() -> None:
    """A program and its copy in another process have no guilty piece in 19 of 20 comparisons."""
    guilty = 0
    for seed in range(CASES):
        _, result = compare(parse(SPLIT, 2 * seed, process=0.02), parse(SPLIT, 2 * seed + 1, process=0.02))
        guilty += bool(result.is_guilty.any())

    assert guilty <= 1


def test_versions_show_how_far_processes_differ() -> None:
    """Two processes of one program that differ by a third in each kernel have no guilty piece where that is known."""
    profiles = [parse(SPLIT, seed, process=0.3) for seed in (0, 1)]
    pieces = cut(profiles)
    guilty = [attribute(profiles, pieces, are_versions=known_same).is_guilty.any() for known_same in (False, True)]

    assert [True, False] == guilty


def test_long_and_short_pieces_differ_in_their_own_ways() -> None:
    """Long pieces differ by a share, short ones by seconds; fewer than five tell nothing, nor does the last of all."""
    signs = np.array([1, -1, 1, -1, 1])
    long, short = np.full(5, 1e-3), np.full(5, 1e-6)
    means = np.stack([[*long, *short, 0.0], [*(long * (1 + 0.1 * signs)), *(short + 3e-7 * signs), 1e-4]])
    share, seconds = estimate_process_sd(means)

    assert (0.148, 4.45e-7) == pytest.approx((share, seconds), rel=0.06)
    assert np.isnan(estimate_process_sd(means[:, 1:-2])).all()


def test_short_kernels_of_a_copy_may_wake_late() -> None:
    """A program whose short kernels all take 8 µs longer in another process has no guilty piece; 30 µs are guilty."""
    late = [parse(SPLIT, 1, scale=0.01, slow=dict.fromkeys(range(len(NODES)), seconds)) for seconds in (8e-6, 3e-5)]

    assert [False, True] == [compare(parse(SPLIT, scale=0.01), each)[1].is_guilty.any() for each in late]


def test_an_interval_covers_the_gap() -> None:
    """The interval of a planted gap covers it in nearly all cases, and shares are around the whole."""
    covered = 0
    for seed in range(CASES):
        _, result = compare(parse(SPLIT, seed), parse(SPLIT, seed + 100, slow={6: 1e-3}))
        low, high = result.gap_intervals
        covered += low[6] <= 1e-3 * 1.0 <= high[6] or abs(result.gaps[6] - 1e-3) < 5e-5
        assert np.nansum(result.shares[0]) == pytest.approx(1.0)

    assert covered >= CASES - 1


def test_shares_of_no_gap_are_missing() -> None:
    """A gap that may be none has no shares."""
    _, result = compare(parse(SPLIT), parse(SPLIT, 1))

    assert np.isnan(result.shares[0]).all()


def test_other_work_in_a_round_is_left_out() -> None:
    """A round in which all is three times as slow changes no gap."""
    calm, disturbed = build_profile(SPLIT, 1), build_profile(SPLIT, 1)
    for values in (*disturbed["calls"].values(), *(kernel["seconds"] for kernel in disturbed["kernels"])):
        values[4] = [3 * value for value in values[4]]
    results = [compare(parse(FUSED), parse_profile(json.dumps(each)))[1] for each in (calm, disturbed)]

    assert results[0].total == pytest.approx(results[1].total, rel=0.02)


def test_few_rounds_are_an_error() -> None:
    """Five rounds have no interval; the error says so, and a damaged profile says that it is one."""
    short = build_profile(SPLIT)
    for values in (*short["calls"].values(), *(kernel["seconds"] for kernel in short["kernels"])):
        del values[5:]

    with pytest.raises(MetricError, match="got 5 rounds in common; expected 6 or more"):
        compare(parse(SPLIT), parse_profile(json.dumps(short)))
    silent = {**build_profile(SPLIT), "kernels": [], "notes": ["The runtime tells nothing."]}
    with pytest.raises(MetricError, match=r"a column was not profiled: The runtime tells nothing\."):
        parse_profile(json.dumps(silent))
    with pytest.raises(MetricError, match=r"invalid profile: got '\{\}'"):
        parse_profile("{}")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"notes": [["nested"]]}, "notes: got"),
        ({"nodes": [[math.nan, "Conv", ""]]}, "nodes: got nan; expected a text"),
        ({"nodes": []}, "a kernel computes a node that is none of the 0"),
        ({"calls": {"plain": [[0.0]], "profiled": [[1.0]]}}, "calls: plain: got 0.0"),
        ({"source": 5}, "source: got 5; expected an object"),
    ],
)
def test_a_damaged_profile_is_refused(change: dict[str, Any], reason: str) -> None:
    """A profile is checked when it is read, so that no later step meets a value of another kind."""
    with pytest.raises(MetricError, match=rf"^invalid profile: got .*{reason}.* Measure it again with --profile\.$"):
        parse_profile(json.dumps({**build_profile(SPLIT), **change}))
