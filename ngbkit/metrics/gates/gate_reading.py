"""The reading of one gate between releases: the evidence of its rounds, and why a column has no result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL
from ngbkit.metrics.beside import compare_sides
from ngbkit.metrics.draws import SEED, Sampler
from ngbkit.metrics.explanation.explain import name_regression
from ngbkit.metrics.gates.change_points import Evidence
from ngbkit.metrics.rankings.candidates import RankingCandidate, list_candidates
from ngbkit.metrics.statistics import DEGREES, widen_for_freedom
from ngbkit.metrics.trials import failures

# The ratios of a gate share one latency; more would be no distribution.
_MOST_CORRELATED = 0.9
# Of rounds that do not differ at all.
_LEAST_VARIANCE = 1e-10


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GateReading:
    """The reading of a gate.

    Parameters
    ----------
    evidence
        Of its rounds; None where a column has no result.
    problems
        Why a column has no result, by its label.
    conclusive
        Whether enough rounds of all columns were uncontended, and outputs were checked.
    unchecked
        Why outputs were not checked; empty where they were.
    regression
        The piece of the network that takes longer in the last column than in the first, where both were profiled.
    """

    evidence: Evidence | None
    problems: Mapping[str, str] = field(default_factory=dict)
    conclusive: bool = False
    unchecked: str = ""
    regression: str = ""


def read_gate(data: Data, columns: Sequence[str], place: int | None) -> GateReading:
    """Read the gate of a first and a last column, and of a probe between them, the release at `place`."""
    (node,) = nodes(data).values()
    measured = {
        candidate.compiler: candidate
        for candidates in list_candidates(data, "gate", "allow", untuned=True).values()
        for candidate in candidates
    }
    if missing := [label for label in columns if label not in measured]:
        errors = {row["compiler"]: f"{row['status']}: {row['error']}" for row in failures(node).to_dict("records")}
        problems = {label: errors.get(label, "it was not measured") for label in missing}
        return GateReading(evidence=None, problems=problems)
    first, *others = (measured[label] for label in columns)
    evidence = _build_evidence(first, others[::-1], place)  # the last release comes before the probe
    return GateReading(
        evidence=evidence,
        conclusive=all(each.conclusive for each in (first, *others)) and bool(np.isfinite(evidence.covariance).all()),
        unchecked=next((each.reason for each in (first, *others) if each.reason), ""),
        regression=name_regression(node, "compiler", (columns[0], columns[-1]), {}),
    )


def _build_evidence(first: RankingCandidate, others: Sequence[RankingCandidate], place: int | None) -> Evidence:
    sampler = Sampler(level=LEVEL, generator=np.random.default_rng(SEED))
    ratios = [_estimate(first, other, sampler) for other in others]
    covariance = np.diag([variance + _LEAST_VARIANCE for _, variance in ratios])
    if len(others) > 1:
        # Both ratios are over the first column: the ratio between them tells how much of their variance is common.
        _, between = _estimate(others[1], others[0], sampler)
        most = _MOST_CORRELATED * math.sqrt(covariance[0, 0] * covariance[1, 1])
        common = min(most, max(0.0, (covariance[0, 0] + covariance[1, 1] - between) / 2))
        covariance[0, 1] = covariance[1, 0] = common
    return Evidence(place=place, log_ratios=tuple(ratio for ratio, _ in ratios), covariance=covariance)


def _estimate(earlier: RankingCandidate, later: RankingCandidate, sampler: Sampler) -> tuple[float, float]:
    """Estimate the logarithm of the later column's latency over the earlier one's, and its variance."""
    lead, deviation = compare_sides(earlier, later, sampler, are_versions=True)
    return lead.log_ratio, widen_for_freedom(deviation, DEGREES * math.sqrt(lead.rounds)) ** 2
