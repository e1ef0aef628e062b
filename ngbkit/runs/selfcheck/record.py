"""The result of a self-check, as frozen records."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from ngbkit.runs.selfcheck.limits import TARGET
from ngbkit.sweep.json_values import to_json_value


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
    disturbed_share
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
    disturbed_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Identity against another compiler: what can be told of their speed-up here.

    Parameters
    ----------
    compiler
        The compiler that is compared with identity.
    beside_busy
        Whether these groups ran beside a busy process.
    groups, unsettled
        Number of groups that were measured, and of those with too few undisturbed rounds: the figures below are of the
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
    unsettled: int = 0
    speedup: float = math.nan
    low: float = math.nan
    high: float = math.nan
    group_sd: float = math.nan
    half_width: float = math.nan
    judged: int = 0
    agreeing: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bias:
    """Our median latency of one network over that of a vendor's tool.

    Parameters
    ----------
    network, compiler, tool
        The network, our compiler, and the vendor's tool.
    ratio, low, high
        Our latency over theirs in the same round: the median over the rounds and its 95 % interval.
    ours_s, theirs_s
        Median latencies over the rounds, in seconds.
    rounds
        Number of rounds with a ratio.
    problem
        Why there is no ratio and what to do about it; empty where there is one.
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
    """Whether a machine is fit to measure on; displayed as a table.

    Parameters
    ----------
    device, chip, threads
        Label and chip of the device, and the number of threads.
    repeats, precision
        Samples a trial, or the target width of the intervals.
    run
        Id of the run: ``ngbkit selfcheck --run ID`` reports on it again.
    created
        Start of the run, in UTC and ISO 8601.
    ngbkit_version
        Version of ngbkit that measured.
    conditions
        Sentences on what disturbed the machine before the run.
    quiet
        Noise of the groups without a busy process.
    disturbed
        Noise of the groups beside a busy process, with ``hog``.
    pairs
        What can be told of different programs, by compiler: first of the quiet groups, then beside a busy process.
    bias
        Bias of ngbkit for each network and tool, with ``full``.
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
    pairs: tuple[Pair, ...] = ()
    bias: tuple[Bias, ...] = ()

    @property
    def coverage(self) -> float:
        """The share of all groups, quiet or not, whose interval covers 1."""
        parts = [part for part in (self.quiet, self.disturbed) if part is not None and part.groups]
        return sum(part.coverage * part.groups for part in parts) / sum(part.groups for part in parts)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON: the quiet noise at the top level, the rest under ``disturbed``, ``pairs`` and ``bias``."""
        data = asdict(self)
        biases = [{**asdict(bias), "within": bias.within} for bias in self.bias]
        quiet = data.pop("quiet")
        json_value: dict[str, Any] = to_json_value({**data, **quiet, "bias": biases})
        return json_value

    def to_text(self) -> str:
        """Return tables for a terminal."""
        from ngbkit.runs.selfcheck import report

        return report.to_text(self)

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        from ngbkit.runs.selfcheck import report

        return report.to_html(self)
