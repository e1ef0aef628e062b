"""The measurements of a self-check: the noise of identical processes, and pairs of different programs."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """The noise of groups that measure `identity` against `identity`, where the true speed-up is 1.

    Parameters
    ----------
    groups, failed, pending
        Number of groups that were measured, that failed, and that are not measured yet.
    rounds, samples
        Interleaving rounds of a group, and samples of a column: medians over the groups.
    noise_floor
        Half the width of the 95 % interval of a speed-up, relative to the speed-up, from the rounds of one pair of
        processes alone: the median over the groups.
    smallest_speedup
        The smallest speed-up that is distinguishable from 1 in nine groups of ten: the 90th percentile of the distances
        of both interval ends, with their allowance for processes, from 1 on the wrong side.
    process_sd
        Standard deviation, between two identical processes, of the logarithm of their latency ratio: that of the
        groups' estimates, less the part that their own rounds explain.
    round_sd
        Robust standard deviation of the logarithm of the ratio from round to round: the median over the groups.
    drift
        How far the latency of the same block moved over the groups: the 90th percentile of its medians over their
        10th, less 1. Comparisons across groups without an anchor are off by as much.
    coverage, coverage_low, coverage_high
        The share of groups whose interval covers 1, with the allowance for processes estimated from the *other* groups
        (for groups beside a busy process, from the quiet ones), and the 95 % interval of that share.
    coverage_within
        The same without the allowance.
    contended_share
        The share of samples from rounds in which other work used the cores; NaN where that was not monitored.
    """

    groups: int
    failed: int
    pending: int
    rounds: float
    samples: float
    noise_floor: float
    smallest_speedup: float
    process_sd: float
    round_sd: float
    drift: float
    coverage: float
    coverage_low: float
    coverage_high: float
    coverage_within: float
    contended_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Identity against another compiler: what can be told of their speed-up here.

    Parameters
    ----------
    compiler
        The compiler that is compared with identity.
    beside_busy
        Whether these groups ran beside a busy process.
    groups, inconclusive
        Number of groups that were measured, and of those with too few uncontended rounds: the figures below are of the
        others, unless there are none.
    speedup, low, high
        The speed-up over identity: the median over the groups and its 95 % interval (NaN with fewer than six groups).
    group_sd
        Standard deviation, between groups, of the logarithm of that speed-up, less the part that their own rounds
        explain. The intervals of every later run allow for it.
    half_width
        Half the width of the 95 % interval of one group, with that allowance, relative to the speed-up: the 90th
        percentile over the groups.
    judged, agreeing
        Number of groups with an interval, and of intervals that contain the median of the other groups (of the quiet
        ones, for groups beside a busy process).
    problem
        Why nothing was measured; empty where something was.
    """

    compiler: str
    beside_busy: bool = False
    groups: int = 0
    inconclusive: int = 0
    speedup: float = math.nan
    low: float = math.nan
    high: float = math.nan
    group_sd: float = math.nan
    half_width: float = math.nan
    judged: int = 0
    agreeing: int = 0
    problem: str = ""
