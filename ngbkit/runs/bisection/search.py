"""The search of a bisection, which measures gates until the evidence tells the release or none does; and its result."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ngbkit.dataset.assembly import nodes
from ngbkit.errors import UsageError
from ngbkit.metrics.beside import compare_sides, iterate_outcomes
from ngbkit.metrics.estimate import Estimate
from ngbkit.metrics.gates.change_points import (
    MOST_LOOKS,
    ChangePoints,
    Evidence,
    estimate_change,
    fit_change_points,
    judge_ends,
)
from ngbkit.metrics.gates.gate import ALPHA
from ngbkit.metrics.metric import name_regression
from ngbkit.metrics.rankings.candidates import RankingCandidate
from ngbkit.metrics.statistics import DEGREES, bound_ratio, widen_for_freedom
from ngbkit.report import Report, Reported
from ngbkit.sweep.column import Column
from ngbkit.sweep.json_values import to_json_value
from ngbkit.tabular import Texts
from ngbkit.user_text import format_count, format_duration

if TYPE_CHECKING:
    from ngbkit.dataset.storage import Data

BisectionVerdict = Literal["slower", "several changes", "not slower", "not conclusive"]
"""``"slower"``: a release made it slower; ``"several changes"``: a release between has a level of its own; ``"not
slower"`` by more than the margin from the first to the last; and ``"not conclusive"``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStep:
    """One gate of a bisection: the latency of its probe, or else of the last release, over the first's."""

    run_id: str
    release: str  # of the probe; empty for a gate of the first and the last release
    slowdown: float
    low: float  # of the 95 % interval; NaN without
    high: float
    conclusive: bool  # by enough uncontended rounds
    reading: str  # the conclusion from it, in words
    seconds: float  # that the run took


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Bisection(Reported):
    """The release of a compiler since which a network is slower.

    `suspects` is the release that made it slower; several where those between could not be measured, or where the
    verdict is not conclusive; and with several changes those that lie between both levels.
    """

    network: str
    compiler: str
    device: str
    releases: tuple[str, ...]  # all, from the first to the last
    skipped: Mapping[str, str]  # why releases could not be measured, by release
    verdict: BisectionVerdict
    suspects: tuple[str, ...] = ()
    probability: float = math.nan  # that the change is at one of the suspects
    slowdown: float = math.nan  # the latency of the last release over the first's, by all gates
    low: float = math.nan  # of its 95 % interval
    high: float = math.nan
    margin: float  # the slowdown that is accepted: 0.01 for 1 %
    gates: tuple[GateStep, ...] = ()  # in their order
    notes: tuple[str, ...] = ()  # what else a reader must know, a sentence each

    @property
    def is_slower(self) -> bool:
        """Return whether the last release is slower than the first by more than the margin, beyond chance."""
        return self.verdict in ("slower", "several changes") or bool(self.suspects)

    def to_report(self) -> Report:
        """Build the verdict, the table of the gates, and the notes."""
        rows = [
            {
                "gate": str(number),
                "release": step.release or self.releases[-1],
                f"latency / {self.releases[0]}": str(Estimate(step.slowdown, step.low, step.high, step.conclusive)),
                "reading": step.reading,
                "run": step.run_id,
            }
            for number, step in enumerate(self.gates, 1)
        ]
        return Report(sentences=[str(self)], frames=[Texts.of_rows(rows)], notes=self.list_notes())

    def list_notes(self) -> list[str]:
        """List the gates that it took, the skipped releases, and the other notes."""
        seconds = sum(step.seconds for step in self.gates)
        return [
            f"{format_count(len(self.gates), 'gate', 'gates')} in {format_duration(seconds)}.",
            *(f"{release} was skipped: {reason.rstrip('.')}." for release, reason in self.skipped.items()),
            *self.notes,
        ]

    def to_json(self) -> dict[str, Any]:
        """The bisection as plain JSON."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return dict(to_json_value({**fields, "gates": [asdict(step) for step in self.gates]}))

    def __str__(self) -> str:
        first, last = self.releases[0], self.releases[-1]
        estimate = f"{Estimate(self.slowdown, self.low, self.high)} times as long with {last} as with {first}"
        margin, name = f"{100 * self.margin:g} %", f"{self.network} with {self.compiler} on {self.device}"
        if self.verdict == "slower":
            count, listed = len(self.releases), " or ".join(self.suspects)
            sure = f"{100 * self.probability:.4g} % sure, of {count} releases"
            return f"{name} is slower since {listed} ({sure}): a call takes {estimate}."
        if self.verdict == "several changes":
            listed = " and ".join(self.suspects)
            return (
                f"{name} became slower in more than one release ({100 * self.probability:.4g} % sure): {listed} lies "
                f"between. A call takes {estimate}. Bisect both parts: --releases {first}..{self.suspects[0]}, and "
                f"--releases {self.suspects[-1]}..{last}."
            )
        if self.verdict == "not slower":
            return f"{name} has no regression of more than {margin} from {first} to {last}: a call takes {estimate}."
        if self.suspects:
            listed = ", ".join(self.suspects)
            return f"Not conclusive: {name} is slower since one of {listed}. A call takes {estimate}."
        interval = f": a call takes {estimate}" if math.isfinite(self.slowdown) else ""
        return f"Not conclusive: {name} may be slower by more than {margin} since {first}, or not{interval}."


Measure = Callable[[Sequence[str]], tuple["Data", str, float]]
"""Measures a gate of columns in turns; returns its dataset, the id of its run, and the seconds that it took."""

# A release is the answer where it is as probable as this.
_SURE = 1 - ALPHA
# Gates beyond those of a bisection whose every gate tells a half of the releases from the other.
_FURTHER_GATES = 3
# The ratios of a gate share one latency; more would be no distribution.
_MOST_CORRELATED = 0.9
_BOUNDS = ("slowdown", "low", "high")
# Of rounds that do not differ at all.
_LEAST_VARIANCE = 1e-10


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _GateReading:
    """The reading of a gate."""

    evidence: Evidence | None  # of its rounds; None where a column has no result
    problems: Mapping[str, str] = field(default_factory=dict)  # why it has none, by its label
    conclusive: bool = False  # by enough uncontended rounds of all columns, whose outputs were checked
    unchecked: str = ""  # why outputs were not; empty where they were
    regression: str = ""  # the piece of the network that takes longer in the last column, where both were profiled


@dataclass(slots=True, kw_only=True)
class ReleaseSearch:
    """The search among releases for the one since which a network is slower."""

    network: str
    device: str
    column: Column
    releases: tuple[str, ...]
    skipped: dict[str, str]
    margin: float
    measure: Measure
    report: Callable[[str], object]
    _steps: list[GateStep] = field(default_factory=list)
    _evidence: list[Evidence] = field(default_factory=list)
    _regression: str = ""
    contended: list[str] = field(default_factory=list)  # the runs of gates that other work slowed

    @property
    def _available(self) -> list[int]:
        """The places of the probes that can be measured, as far as is known."""
        return [place for place in range(1, len(self.releases) - 1) if self.releases[place] not in self.skipped]

    def carry_out(self) -> Bisection:
        """Measure gates of the ends, and if the last release is slower, gates of probes."""
        for _ in range(MOST_LOOKS):
            reading = self._measure_gate(None)
            if reading.unchecked:
                return self._conclude("not conclusive", notes=(f"Its outputs were not checked: {reading.unchecked}.",))
            verdict = judge_ends(self._evidence, self.margin)
            if verdict == "not slower":
                return self._conclude("not slower")
            if verdict == "slower":
                return self._locate()
        return self._conclude("not conclusive")

    def _locate(self) -> Bisection:
        """Measure probes until one change, or more than one, is as probable as `_SURE`."""
        most = len(self._steps) + _FURTHER_GATES * math.ceil(math.log2(len(self.releases)))
        while True:
            if judge_ends(self._evidence, self.margin) == "not slower":  # by the ends in the gates of probes
                return self._conclude("not slower")
            points = fit_change_points(self._evidence, len(self.releases), self.margin)
            places, probability = points.find_likeliest(self._available)
            probe = points.choose_probe(self._available)
            if probability >= _SURE or probe is None:
                return self._conclude("slower", points, places, probability)
            probes = dict.fromkeys(gate.place for gate in self._evidence if gate.place is not None)
            between = [place for place in probes if points.find_level(place) == "between"]
            if points.split_probability >= _SURE and between:
                return self._conclude("several changes", points, between, points.split_probability)
            if len(self._steps) >= most:
                return self._conclude("not conclusive", points, points.find_credible(_SURE))
            self._measure_gate(probe)

    def _measure_gate(self, place: int | None) -> _GateReading:
        """Measure the ends, with the release at a place between them, and add the evidence."""
        first, last = self.releases[0], self.releases[-1]
        probe = "" if place is None else self.releases[place]
        releases = [first, *filter(None, [probe]), last]
        columns = [replace(self.column, release=release).label for release in releases]
        data, run_id, seconds = self.measure(columns)
        reading = _read_gate(data, columns, place)
        text = self._add_reading(reading, columns, place)
        if not (reading.problems or reading.unchecked or reading.conclusive):
            self.contended.append(run_id)
        bounds = (math.nan,) * 3
        if evidence := reading.evidence:  # of its probe, or else of the last release
            bounds = bound_ratio(evidence.log_ratios[-1], math.sqrt(evidence.covariance[-1, -1]))
        self._steps.append(
            GateStep(
                run_id=run_id,
                release=probe,
                **dict(zip(_BOUNDS, bounds, strict=True)),
                conclusive=reading.conclusive,
                reading=text,
                seconds=seconds,
            )
        )
        self.report(f"gate {len(self._steps)}: {text}")
        return reading

    def _add_reading(self, reading: _GateReading, columns: Sequence[str], place: int | None) -> str:
        """Add the evidence of a gate, or skip its probe; return what it tells, in words."""
        for label, problem in reading.problems.items():
            if place is None or label != columns[1]:
                end = "first" if label == columns[0] else "last"
                raise UsageError(f"{label} has no result ({problem}). Choose another {end} release.")
            return self._skip(place, problem)
        if place is not None and reading.unchecked:
            return self._skip(place, f"its outputs were not checked: {reading.unchecked}")
        if not reading.conclusive or reading.evidence is None:
            return "not conclusive: other work slowed it"
        self._evidence.append(reading.evidence)
        self._regression = reading.regression or self._regression
        name = self.releases[-1] if place is None else self.releases[place]
        if place is None:
            verdict = judge_ends(self._evidence, self.margin)
            return f"{name} may be slower or not" if verdict == "not conclusive" else f"{name} is {verdict}"
        points = fit_change_points(self._evidence, len(self.releases), self.margin)
        level = points.find_level(place)
        left = points.find_credible(_SURE)
        ends = f"one of {self.releases[left[0]]} to {self.releases[left[-1]]}"
        where = self.releases[left[0]] if len(left) == 1 else ends
        levels = {
            "before": f"as fast as {self.releases[0]}",
            "between": f"between {self.releases[0]} and {self.releases[-1]}",
            "after": f"as slow as {self.releases[-1]}",
        }
        return f"{name} is {levels[level]}; slower since {where}"

    def _skip(self, place: int, reason: str) -> str:
        """Skip a probe without a usable result; return that in words."""
        self.skipped[self.releases[place]] = reason
        return f"{self.releases[place]} is skipped, and its neighbour tried: {reason}"

    def _conclude(
        self,
        verdict: BisectionVerdict,
        points: ChangePoints | None = None,
        places: Sequence[int] = (),
        probability: float = math.nan,
        notes: tuple[str, ...] = (),
    ) -> Bisection:
        bounds = (math.nan,) * 3
        if points is not None:
            bounds = points.estimate_slowdown()
        elif self._evidence:
            bounds = bound_ratio(*estimate_change(self._evidence))
        if verdict == "slower":
            profile = "`--profile` names the piece of the network that takes longer."
            notes = (f"The piece that takes longer: {self._regression}." if self._regression else profile,)
        elif verdict == "not conclusive" and self.contended:
            notes += (
                f"Other work slowed {len(self.contended)} of {len(self._steps)} gates: end it, or raise --patience. "
                "The same command measures these gates again.",
            )
        elif verdict == "not conclusive" and not notes:
            notes = ("More repeats settle more (-r), or a wider --margin.",)
        return Bisection(
            network=self.network,
            compiler=self.column.label,
            device=self.device,
            releases=self.releases,
            skipped=dict(self.skipped),
            verdict=verdict,
            suspects=tuple(self.releases[place] for place in sorted(places)),
            probability=probability,
            **dict(zip(_BOUNDS, bounds, strict=True)),
            margin=self.margin,
            gates=tuple(self._steps),
            notes=notes,
        )


def _read_gate(data: Data, columns: Sequence[str], place: int | None) -> _GateReading:
    """Read the gate of a first and a last column, and of a probe between them, the release at `place`."""
    (node,) = nodes(data).values()
    outcomes = {labels["compiler"]: outcome for labels, outcome in iterate_outcomes(data)}
    read = [(label, outcomes.get(label, "it was not measured")) for label in columns]
    if problems := {label: outcome for label, outcome in read if isinstance(outcome, str)}:
        return _GateReading(evidence=None, problems=problems)
    first, *others = (outcome for _, outcome in read if not isinstance(outcome, str))
    evidence = _build_evidence(first, others[::-1], place)  # the last release comes before the probe
    return _GateReading(
        evidence=evidence,
        conclusive=all(each.conclusive for each in (first, *others)) and bool(np.isfinite(evidence.covariance).all()),
        unchecked=next((each.reason for each in (first, *others) if each.reason), ""),
        regression=name_regression(node, (columns[0], columns[-1]), {}),
    )


def _build_evidence(first: RankingCandidate, others: Sequence[RankingCandidate], place: int | None) -> Evidence:
    ratios = [_estimate(first, other) for other in others]
    covariance = np.diag([variance + _LEAST_VARIANCE for _, variance in ratios])
    if len(others) > 1:
        # Both ratios are over the first column: the ratio between them tells how much of their variance is common.
        _, between = _estimate(others[1], others[0])
        most = _MOST_CORRELATED * math.sqrt(covariance[0, 0] * covariance[1, 1])
        common = min(most, max(0.0, (covariance[0, 0] + covariance[1, 1] - between) / 2))
        covariance[0, 1] = covariance[1, 0] = common
    return Evidence(place=place, log_ratios=tuple(ratio for ratio, _ in ratios), covariance=covariance)


def _estimate(earlier: RankingCandidate, later: RankingCandidate) -> tuple[float, float]:
    """Estimate the logarithm of the later column's latency over the earlier one's, and its variance."""
    lead, deviation = compare_sides(earlier, later, are_versions=True)
    return lead.log_ratio, widen_for_freedom(deviation, DEGREES * math.sqrt(lead.rounds)) ** 2
