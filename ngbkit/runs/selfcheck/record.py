"""What a self-check found, as frozen records: to read, to keep, and to show."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from ngbkit.sweep.json_values import to_json_value

LEVEL = 0.95
# Of our median latency over a vendor's own.
TARGET = (0.97, 1.03)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """What groups of `identity` against `identity` show, where the true speed-up is 1.

    Parameters
    ----------
    groups, failed, pending
        Groups that were measured, that gave no measurement, and that are still to be measured.
    rounds, samples
        Of a group, the median: interleaving rounds, and samples a column.
    noise_floor
        Half the width of the 95 % interval of a speed-up, relative to it and from the rounds of one pair of processes
        alone: the median over the groups.
    smallest_speedup
        The smallest speed-up that would be told from 1 in nine groups of ten: the 90th percentile of how far both ends
        of the intervals, with their allowance for processes, are from 1 on the wrong side.
    process_sd
        Standard deviation, between two processes that run the same thing, of the logarithm of their latencies' ratio:
        that of the groups' estimates, less what their own rounds explain.
    round_sd
        Standard deviation of the logarithm of the ratio from round to round, robust; the median over the groups.
    drift
        How far the latency of the same block moved over the groups: the 90th percentile of its medians over their
        10th, less 1. What is compared across groups without an anchor is off by so much.
    coverage, coverage_low, coverage_high
        The share of groups whose interval, with the allowance for processes that the *other* groups give (for those
        beside a busy process, the quiet ones), covers 1, and the 95 % interval of that share itself.
    coverage_within
        The same without the allowance.
    disturbed_share
        The share of rounds in which something else had the cores; NaN where that was not watched.
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
    disturbed_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bias:
    """Our median latency of one network over that of a vendor's own tool.

    Parameters
    ----------
    network, compiler, tool
        What was measured, by which of our compilers, and the vendor's tool for it.
    ratio, low, high
        Ours over theirs in the same round: the median over the rounds and its 95 % bootstrap interval.
    ours_s, theirs_s
        Median latencies, over the rounds, in seconds.
    rounds
        How many rounds gave a ratio.
    problem
        Why there is none, with the way out; empty where there is one.
    """

    network: str
    compiler: str
    tool: str
    ratio: float = math.nan
    low: float = math.nan
    high: float = math.nan
    ours_s: float = math.nan
    theirs_s: float = math.nan
    rounds: int = 0
    problem: str = ""

    @property
    def within(self) -> bool:
        """Whether the ratio is within `TARGET`."""
        return TARGET[0] <= self.ratio <= TARGET[1]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SelfCheck:
    """Whether a machine is fit to measure on; a table wherever it is shown.

    Parameters
    ----------
    device, chip, threads
        What was checked, and with how many threads.
    repeats, precision
        What the run was told: samples a trial, or how narrow an interval was to be.
    run
        The run that the figures are from: ``ngbkit selfcheck --run ID`` reports on it again.
    created
        When it was measured, in UTC as ISO 8601 has it.
    ngbkit_version
        Which ngbkit measured.
    conditions
        What disturbed the machine when it was looked at, in sentences.
    quiet
        Of the groups that ran as any would.
    disturbed
        Of those that ran beside a busy process, with ``hog``.
    bias
        Of ngbkit itself, with ``full``.
    """

    device: str
    chip: str
    threads: int
    repeats: int | None
    precision: float | None
    run: str
    created: str
    ngbkit_version: str
    conditions: tuple[str, ...]
    quiet: Noise
    disturbed: Noise | None = None
    bias: tuple[Bias, ...] = ()

    @property
    def coverage(self) -> float:
        """The share of all groups, quiet or not, whose interval covers 1."""
        parts = [part for part in (self.quiet, self.disturbed) if part is not None and part.groups]
        return sum(part.coverage * part.groups for part in parts) / sum(part.groups for part in parts)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON: the figures of the quiet groups at the top, the others under ``disturbed`` and ``bias``."""
        top = {
            name: getattr(self, name)
            for name in (
                *("device", "chip", "threads", "repeats", "precision", "run", "created", "ngbkit_version"),
                "conditions",
            )
        }
        found = {
            **top,
            **asdict(self.quiet),
            "disturbed": None if self.disturbed is None else asdict(self.disturbed),
            "bias": [{**asdict(one), "within": one.within} for one in self.bias],
        }
        told: dict[str, Any] = to_json_value(found)
        return told

    def to_text(self) -> str:
        """Tables for a terminal."""
        from ngbkit.runs.selfcheck import report

        return report.to_text(self)

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        from ngbkit.runs.selfcheck import report

        return report.to_html(self)
