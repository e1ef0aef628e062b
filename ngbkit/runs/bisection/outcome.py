"""The result of a bisection: the release that made a network slower, and the gates that tell it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from ngbkit.metrics.estimate import Estimate
from ngbkit.report import Report, Reported
from ngbkit.sweep.json_values import to_json_value
from ngbkit.tabular import Texts
from ngbkit.user_text import format_count, format_duration

BisectionVerdict = Literal["slower", "several changes", "not slower", "not conclusive"]
"""``"slower"``: a release made it slower; ``"several changes"``: a release between has a level of its own; ``"not
slower"`` by more than the margin from the first to the last; and ``"not conclusive"``."""

VERDICTS: tuple[BisectionVerdict, ...] = get_args(BisectionVerdict)


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
