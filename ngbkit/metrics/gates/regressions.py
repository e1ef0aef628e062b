"""Regressions: which trials are slower by more than a margin, beyond what chance does to any of them.

Of 40 trials, two are outside of their 95 % interval by chance. So each trial has a one-sided test of "slower by the
margin at most", and the tests are combined by Holm's procedure (1979, "A Simple Sequentially Rejective Multiple Test
Procedure", Scandinavian Journal of Statistics 6), which keeps the probability of any false alarm below `ALPHA` whatever
the trials have in common.

The tests reach far into the tails, where the spread that few rounds show is too uncertain for a normal distribution:
they use Student's t (`ngbkit.metrics.statistics.FAMILY_DEGREES`). ``tests/metrics/gates/test_regressions.py`` counts
false alarms of 10 to 40 rounds and 1 to 40 trials.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from ngbkit.metrics.statistics import FAMILY_DEGREES, adjust_by_holm, estimate_deviation, to_normal_scores

Verdict = Literal["slower", "failed", "not conclusive", "not judged", "not slower"]
"""``"slower"`` by more than the margin, beyond chance; ``"failed"`` where the earlier side was measured and the later
one failed; ``"not slower"`` than the margin, with 95 % confidence; ``"not conclusive"`` where neither is sure, or
outputs were not checked; and ``"not judged"`` where the earlier side failed."""

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

ALPHA = 0.05
"""The probability of any false alarm among all trials, and of a trial that passes although it is slower."""

MARGIN = 0.01
"""The slowdown that is no regression unless the user says otherwise."""


def judge(
    slowdown: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    *,
    level: float,
    rounds: ArrayLike,
    conclusive: ArrayLike,
    margin: float = MARGIN,
    alpha: float = ALPHA,
) -> NDArray[np.str_]:
    """Judge trials that both sides measured: one of `VERDICTS` for each.

    They have the ratio of the latency after over that before with its interval, the rounds behind it, and whether
    enough of these were uncontended; without an interval, a trial is not conclusive. `alpha` is the probability of any
    false alarm, and of a trial that passes although it is slower.
    """
    deviation = estimate_deviation(low, high, level)
    with np.errstate(divide="ignore", invalid="ignore"):
        score = np.where(deviation > 0, (np.log(np.asarray(slowdown, float)) - math.log1p(margin)) / deviation, np.nan)
    normal = to_normal_scores(score, rounds, FAMILY_DEGREES)
    usable = np.asarray(conclusive, bool) & ~np.isnan(normal)
    slower = np.zeros(usable.shape, bool)
    slower[usable] = adjust_by_holm(ndtr(-normal[usable])) < alpha
    fine = usable & (ndtr(normal) < alpha)
    return np.select([slower, fine], ["slower", "not slower"], "not conclusive")
