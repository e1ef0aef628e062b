"""The result of a bisection: the release that made a network slower, the gates that tell it, and their price."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from ngbkit.metrics.estimate import Estimate
from ngbkit.report import Report, Reported
from ngbkit.sweep.json_values import to_json_value
from ngbkit.tabular import Texts
from ngbkit.user_text import format_count, format_duration, format_seconds, format_size

BisectionVerdict = Literal["slower", "several changes", "not slower", "not conclusive"]
"""``"slower"``: a release made it slower; ``"several changes"``: a release between has a level of its own; ``"not
slower"`` by more than the margin from the first to the last; and ``"not conclusive"``."""

VERDICTS: tuple[BisectionVerdict, ...] = get_args(BisectionVerdict)

# The operators that are listed, and the share of all seconds by which one of them must differ.
_MOST_OPERATORS, _LEAST_SHARE = 5, 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStep:
    """One gate of a bisection.

    Parameters
    ----------
    run_id
        Its run.
    release
        The probe; empty for a gate of the first and the last release.
    slowdown, low, high
        The latency of the probe, or else of the last release, over the first's, with its 95 % interval; NaN without.
    reading
        The conclusion from it, in words.
    conclusive
        Whether enough of its rounds were uncontended.
    seconds
        The duration of the run.
    """

    run_id: str
    release: str
    slowdown: float
    low: float
    high: float
    conclusive: bool
    reading: str
    seconds: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Bisection(Reported):
    """The release of a compiler since which a network is slower.

    Parameters
    ----------
    network, compiler, device
        What was measured, and where.
    releases
        All releases from the first to the last.
    skipped
        Why releases could not be measured, by release.
    verdict
        One of `VERDICTS`.
    suspects
        The release that made it slower; several where those between could not be measured, or where the verdict is not
        conclusive; and with several changes those that lie between both levels.
    probability
        That the change is at one of the suspects.
    slowdown, low, high
        The latency of the last release over the first's, with its 95 % interval, by all gates.
    margin
        The slowdown that is accepted: 0.01 for 1 %.
    gates
        The gates in their order.
    environments
        The seconds and the bytes of the environment of each release that was installed.
    operators
        What the profiles of the nearest releases before and after the change show, a row per operator.
    notes
        What else a reader must know, a sentence each.
    """

    network: str
    compiler: str
    device: str
    releases: tuple[str, ...]
    skipped: Mapping[str, str]
    verdict: BisectionVerdict
    suspects: tuple[str, ...] = ()
    probability: float = math.nan
    slowdown: float = math.nan
    low: float = math.nan
    high: float = math.nan
    margin: float
    gates: tuple[GateStep, ...] = ()
    environments: Mapping[str, Mapping[str, float]]
    operators: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

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
        """List the gates and environments that it took, the skipped releases, the operators, and the other notes."""
        seconds = sum(step.seconds for step in self.gates)
        installed = sum(each["seconds"] for each in self.environments.values())
        size = int(sum(each["size_bytes"] for each in self.environments.values()))
        gates = format_count(len(self.gates), "gate", "gates")
        environments = format_count(len(self.environments), "environment", "environments")
        took = f"{gates} in {format_duration(seconds)}; {environments} of {len(self.releases)} releases, "
        return [
            f"{took}installed in {format_duration(installed)}, {format_size(size)}.",
            *(f"{release} was skipped: {reason.rstrip('.')}." for release, reason in self.skipped.items()),
            *self.notes,
            *self._describe_operators(),
        ]

    def _describe_operators(self) -> Iterator[str]:
        for row in self.operators:
            times = [
                f" in {format_seconds(row[key])}" if row[key] else "" for key in ("seconds_before", "seconds_after")
            ]
            yield f"- {row['operator']}: {row['count_before']}{times[0]} before, {row['count_after']}{times[1]} after"

    def to_json(self) -> dict[str, Any]:
        """The bisection as plain JSON."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain: dict[str, Any] = to_json_value({**fields, "gates": [asdict(step) for step in self.gates]})
        return plain

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
                f"between. A call takes {estimate}. Bisect both parts: --good {first} --bad {self.suspects[0]}, and "
                f"--good {self.suspects[-1]} --bad {last}."
            )
        if self.verdict == "not slower":
            return f"{name} has no regression of more than {margin} from {first} to {last}: a call takes {estimate}."
        if self.suspects:
            listed = ", ".join(self.suspects)
            return f"Not conclusive: {name} is slower since one of {listed}. A call takes {estimate}."
        interval = f": a call takes {estimate}" if math.isfinite(self.slowdown) else ""
        return f"Not conclusive: {name} may be slower by more than {margin} since {first}, or not{interval}."


def compare_operators(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Compare the operators in the facts of two releases: those that differ most, in seconds or else in number."""
    counts = [_count_operators(facts) for facts in (before, after)]
    seconds = [facts.get("operator_s") or {} for facts in (before, after)]
    rows = [
        {
            "operator": name,
            **{f"count_{side}": count.get(name, 0) for side, count in zip(_SIDES, counts, strict=True)},
            **{f"seconds_{side}": each.get(name, 0.0) for side, each in zip(_SIDES, seconds, strict=True)},
        }
        for name in dict.fromkeys([*counts[0], *counts[1]])
    ]
    total = sum(seconds[0].values())

    def measure_change(row: Mapping[str, Any]) -> float:
        return abs(float(row["seconds_after"] - row["seconds_before"]))

    changed = [
        row
        for row in rows
        if row["count_before"] != row["count_after"] or (total and measure_change(row) > _LEAST_SHARE * total)
    ]
    return tuple(sorted(changed, key=measure_change, reverse=True)[:_MOST_OPERATORS])


_SIDES: Sequence[str] = ("before", "after")


def has_operators(facts: Mapping[str, Any]) -> bool:
    """Return whether a profile tells operators in the facts of a release."""
    return bool(_count_operators(facts))


def _count_operators(facts: Mapping[str, Any]) -> Mapping[str, int]:
    """Return the number of operators by kind: of ONNX Runtime's, or of OpenVINO's kernels."""
    counts: Mapping[str, int] = facts.get("operators") or facts.get("primitives") or {}
    return counts
