"""Change points: the release that made a call slower, by the evidence of gates over the same releases.

Each gate measures the first and the last release in the same rounds, and mostly a probe between them, so that nothing
that changes from gate to gate affects where the probe lies: at the level of the first, of the last, or elsewhere. The
hypotheses are one change at each release, and two changes with a level between them; the size of the change is unknown,
and each gate has the errors of its rounds and of its processes. A probe is chosen where the hypotheses disagree most, a
probabilistic bisection (Horstein, 1963; Burnashev and Zigangirov, 1974; Waeber, Frazier and Henderson, 2013, "Bisection
search with noisy responses", SIAM Journal on Control and Optimization 51).
``tests/metrics/gates/test_change_points.py`` counts right and wrong answers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from ngbkit.device.timing.normal import LEVEL
from ngbkit.metrics.gates.gate import ALPHA, Verdict, judge
from ngbkit.metrics.statistics import bound_ratio

Floats = NDArray[np.floating[Any]]
Level = Literal["before", "between", "after"]
"""The level of a release: that of the first one, one between, or that of the last."""

_LEVELS: tuple[Level, ...] = get_args(Level)

MOST_LOOKS = 4
"""The gates between the first and the last release, at most, until one of them is known to be slower or not."""

# The prior probability of two changes, and the levels between them as shares of the change.
_SPLIT_PRIOR = 0.05
_SHARES = np.linspace(-1.0, 2.0, 31)
# A level within this share of either end is not told from it, in a change of any size.
_LEAST_TOLERANCE, _MOST_TOLERANCE = 0.15, 0.4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence:
    """The evidence of one gate: logarithms of latencies over that of the first release in the same rounds."""

    place: int | None  # of the probe among the releases; None for a gate of the two ends
    log_ratios: tuple[float, ...]  # of the last release, and of the probe if there is one
    covariance: Floats  # of these, (ratios, ratios)


def judge_ends(evidence: Sequence[Evidence], margin: float) -> Verdict:
    """Judge by all gates so far if the last release is slower by more than the margin; each look shares the error."""
    if not evidence:
        return "not conclusive"
    slowdown, low, high = bound_ratio(*estimate_change(evidence))
    alpha = ALPHA / MOST_LOOKS
    # The deviation of each gate is widened for its rounds, so that no more freedom is lost here.
    verdicts = judge(
        [slowdown], [low], [high], level=LEVEL, rounds=math.inf, conclusive=[True], margin=margin, alpha=alpha
    )
    return cast("Verdict", str(verdicts[0]))


def estimate_change(evidence: Sequence[Evidence]) -> tuple[float, float]:
    """Estimate the logarithm of the last release's latency over the first's, and its deviation, by all gates."""
    weights = np.array([1 / gate.covariance[0, 0] for gate in evidence])
    values = np.array([gate.log_ratios[0] for gate in evidence])
    return float(weights @ values / weights.sum()), float(weights.sum() ** -0.5)


@dataclass(frozen=True, kw_only=True, eq=False)
class ChangePoints:
    """The probabilities of all hypotheses about the change, ``(hypotheses,)`` each."""

    count: int  # of releases, those that cannot be measured included
    firsts: NDArray[np.intp]  # the place of the release with the first change
    seconds: NDArray[np.intp]  # that of the second; the same for one change
    probabilities: Floats
    changes: Floats  # the logarithm of the last release's latency over the first's
    deviations: Floats  # of these

    @property
    def split_probability(self) -> float:
        """The probability that the change is of two parts, with a release between both levels."""
        return float(self.probabilities[self.firsts != self.seconds].sum())

    @cached_property
    def single_probabilities(self) -> Floats:
        """The probability of one change at each release, ``(releases,)``; 0 for the first."""
        is_single = self.firsts == self.seconds
        weights = self.probabilities[is_single]
        return np.asarray(np.bincount(self.firsts[is_single], weights=weights, minlength=self.count), float)

    def find_likeliest(self, available: Collection[int]) -> tuple[tuple[int, ...], float]:
        """Find the likeliest place of one change, and its probability.

        It is several releases where those before the last of them are not among the `available` ones.
        """
        groups: list[list[int]] = [[]]
        for place in range(1, self.count):
            groups[-1].append(place)
            if place in available:
                groups.append([])
        best = max(filter(None, groups), key=lambda group: self.single_probabilities[group].sum())
        return tuple(best), float(self.single_probabilities[best].sum())

    def find_credible(self, probability: float) -> tuple[int, ...]:
        """Find the fewest releases that have one change among them with that probability, if there is one."""
        order = np.argsort(-self.single_probabilities, kind="stable")
        shares = np.cumsum(self.single_probabilities[order]) / max(self.single_probabilities.sum(), 1e-300)
        return tuple(sorted(order[: int(np.searchsorted(shares, probability)) + 1].tolist()))

    def find_level(self, place: int) -> Level:
        """Find the likeliest level of a release."""
        return _LEVELS[int(np.argmax(self._sum_levels(place)))]

    def choose_probe(self, available: Collection[int]) -> int | None:
        """Choose the release about whose level the hypotheses disagree most, of equals the middle one; or None."""
        middle, entropies = (self.count - 1) / 2, {}
        for place in available:
            positive = (levels := self._sum_levels(place))[levels > 0]
            entropies[place] = round(float(-(positive * np.log(positive)).sum()), 9)
        return max(entropies, key=lambda place: (entropies[place], -abs(place - middle)), default=None)

    def _sum_levels(self, place: int) -> Floats:
        """Sum the probabilities that a release has the first level, one between, and the last."""
        before = self.probabilities[self.firsts > place].sum()
        after = self.probabilities[self.seconds <= place].sum()
        return np.array([before, max(0.0, 1 - before - after), after])

    def estimate_slowdown(self) -> tuple[float, float, float]:
        """Estimate the latency after the change over that before it, with its 95 % interval, by all gates."""
        best = int(np.argmax(self.probabilities))
        return bound_ratio(float(self.changes[best]), float(self.deviations[best]))


def fit_change_points(evidence: Sequence[Evidence], count: int, margin: float) -> ChangePoints:
    """Compute the probabilities of all changes among so many releases; of one level, these differ by half a margin."""
    firsts, seconds, shares, log_priors = _list_hypotheses(evidence, count, margin)
    ratios = np.concatenate([gate.log_ratios for gate in evidence])
    columns = []
    for gate in evidence:
        columns.append(np.ones(len(firsts)))
        if gate.place is not None:
            columns.append(np.where(gate.place < firsts, 0.0, np.where(gate.place < seconds, shares, 1.0)))
    design = np.stack(columns, axis=1)
    weighted = design @ np.linalg.inv(_build_covariance(evidence, margin))
    # The size of the change has a flat prior, and is integrated out.
    information, projected = (weighted * design).sum(axis=1), weighted @ ratios
    log_posterior = log_priors - np.log(information) / 2 + projected**2 / information / 2
    likelihoods = np.exp(log_posterior - log_posterior.max())
    return ChangePoints(
        count=count,
        firsts=firsts,
        seconds=seconds,
        probabilities=likelihoods / likelihoods.sum(),
        changes=projected / information,
        deviations=information**-0.5,
    )


def _list_hypotheses(
    evidence: Sequence[Evidence], count: int, margin: float
) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats, Floats]:
    """List one change at each release, and two changes with each level between them, with their priors."""
    change, _ = estimate_change(evidence)
    tolerance = np.clip(math.log1p(margin) / max(change, 1e-9), _LEAST_TOLERANCE, _MOST_TOLERANCE)
    levels = _SHARES[(np.abs(_SHARES) > tolerance) & (np.abs(_SHARES - 1) > tolerance)]
    single = np.arange(1, count)
    first, second = np.triu_indices(count - 1, 1)
    pairs = len(first) * len(levels)
    priors = [np.full(len(single), (1 - _SPLIT_PRIOR) / len(single)), np.full(pairs, _SPLIT_PRIOR / max(pairs, 1))]
    return (
        np.concatenate([single, np.repeat(first + 1, len(levels))]),
        np.concatenate([single, np.repeat(second + 1, len(levels))]),
        np.concatenate([np.ones(len(single)), np.tile(levels, len(first))]),
        np.log(np.concatenate(priors)),
    )


def _build_covariance(evidence: Sequence[Evidence], margin: float) -> Floats:
    """Build the covariance of all ratios, with the deviation of a release that all its gates share."""
    places = [place for gate in evidence for place in (None, gate.place)[: len(gate.log_ratios)]]
    covariance = np.array([[place is not None and place == other for other in places] for place in places], float)
    covariance *= (math.log1p(margin) / 2) ** 2
    start = 0
    for gate in evidence:
        stop = start + len(gate.log_ratios)
        covariance[start:stop, start:stop] += gate.covariance
        start = stop
    return covariance
