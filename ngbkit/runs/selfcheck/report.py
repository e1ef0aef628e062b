"""The report of a self-check: the conditions, the noise, pairs of different programs, and the conclusions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ngbkit.device.timing.normal import LEVEL, find_quantile
from ngbkit.metrics.disturbances import QUIET
from ngbkit.metrics.estimate import Estimate
from ngbkit.metrics.rendering import to_texts
from ngbkit.metrics.statistics import estimate_share
from ngbkit.report import Report, Reported
from ngbkit.sweep.json_values import to_json_value
from ngbkit.user_text import format_duration, format_share

if TYPE_CHECKING:
    import pandas as pd

# A drift of the latency beyond this share is worth a word.
UNSTEADY = 0.1
# Half widths whose cost a check tells.
_WIDTHS = (0.05, 0.02, 0.01)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """The noise of groups that measure `identity` against `identity`, where the true speed-up is 1."""

    groups: int  # that were measured
    failed: int
    pending: int  # that are not measured yet
    rounds: float  # of a group: the median over the groups
    samples: float  # of a column: the median over the groups
    # Half the width of the 95 % interval of a speed-up, relative to the speed-up, from the rounds of one pair of
    # processes alone: the median over the groups.
    noise_floor: float
    # The smallest speed-up that is distinguishable from 1 in nine groups of ten: the 90th percentile of the distances
    # of both interval ends, with their allowance for processes, from 1 on the wrong side.
    smallest_speedup: float
    # Standard deviation, between two identical processes, of the logarithm of their latency ratio: that of the groups'
    # estimates, less the part that their own rounds explain.
    process_sd: float
    round_sd: float  # robust, of the logarithm of the ratio from round to round: the median over the groups
    # How far the latency of the same block moved over the groups: the 90th percentile of its medians over their 10th,
    # less 1. Comparisons across groups without an anchor are off by as much.
    drift: float
    # The share of groups whose interval covers 1, with the allowance for processes estimated from the *other* groups
    # (for groups beside a busy process, from the quiet ones), and the 95 % interval of that share.
    coverage: float
    coverage_low: float
    coverage_high: float
    coverage_within: float  # the same without the allowance
    contended_share: float  # of samples from rounds in which other work used the cores; NaN if not monitored


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Identity against another compiler: what can be told of their speed-up here."""

    compiler: str  # that is compared with identity
    beside_busy: bool = False  # whether these groups ran beside a busy process
    groups: int = 0  # that were measured
    # Of those with too few uncontended rounds: the figures below are of the others, unless there are none.
    inconclusive: int = 0
    speedup: float = math.nan  # over identity: the median over the groups
    low: float = math.nan  # of its 95 % interval; NaN with fewer than six groups
    high: float = math.nan
    # Standard deviation, between groups, of the logarithm of that speed-up, less the part that their own rounds
    # explain. The intervals of every later run allow for it.
    group_sd: float = math.nan
    # Half the width of the 95 % interval of one group, with that allowance, relative to the speed-up: the 90th
    # percentile over the groups.
    half_width: float = math.nan
    judged: int = 0  # groups with an interval
    # Intervals that contain the median of the other groups (of the quiet ones, for groups beside a busy process).
    agreeing: int = 0
    problem: str = ""  # why nothing was measured


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SelfCheck(Reported):
    """The fitness of a machine for measurements; displayed as a table."""

    device: str
    chip: str
    threads: int
    repeats: int | None  # samples a trial
    precision: float | None  # or the target width of the intervals
    run: str  # its id: `ngbkit selfcheck ID` reports on it again
    created: str  # the start of the run, in UTC and ISO 8601
    ngbkit_version: str  # that measured
    conditions: tuple[str, ...]  # what disturbed the machine before the run, in sentences
    quiet: Noise  # of the groups without a busy process
    contended: Noise | None = None  # of the groups beside a busy process, with `hog`
    # What can be told of different programs, by compiler: first of the quiet groups, then beside a busy process.
    pairs: tuple[Pair, ...] = ()
    group_s: float = math.nan  # from one group to the next: all of its processes and rounds
    # Standard deviations, between the hours of earlier runs, of the logarithm of speed-ups, by compiler.
    hours: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON: the quiet noise at the top level, the rest under ``contended`` and ``pairs``."""
        data = asdict(self)
        quiet = data.pop("quiet")
        return dict(to_json_value({**data, **quiet, "faults": self.find_faults(), "conclusions": self.conclude()}))

    def find_faults(self) -> list[str]:
        """Find why the machine is unfit to measure on, in a few words each; empty if it is fit."""
        noise, faults = self.quiet, list(_find_disturbances(self.quiet))
        if not math.isfinite(noise.smallest_speedup):
            faults.append("there are too few rounds for intervals")
        if noise.coverage_high < LEVEL:
            faults.append("intervals are too narrow")
        return faults

    def conclude(self) -> list[str]:
        """Say in sentences which speed-ups are distinguishable, and where intervals are too narrow."""
        smallest = self.quiet.smallest_speedup
        sentences = [
            f"A speed-up of {smallest:.4f} or more, or of {1 / smallest:.4f} or less, is distinguishable from none "
            "between two copies of one program here."
            if math.isfinite(smallest)
            else "There are too few rounds for intervals; measure more repeats (-r)."
        ]
        sentences += [*_describe_pairs(self.pairs), *_describe_waves(self), *_warn_of_other_programs(self)]
        for noise, where in ((self.quiet, ""), (self.contended, " beside a busy process")):
            if noise is not None and noise.coverage_high < LEVEL:
                sentences.append(
                    f"The {LEVEL:.0%} intervals cover the truth in {100 * noise.coverage:.1f} % of the groups{where}: "
                    "they are too narrow. Find out what disturbs the machine, then repeat the self-check."
                )
        return sentences

    def to_report(self) -> Report:
        """Build the conclusions, the conditions and the tables."""
        origin = f"run {self.run}, {self.created}, ngbkit {self.ngbkit_version}"
        tables = [_build_noise_table(self)]
        if self.pairs:  # a row a compiler, and another for its groups beside a busy process
            import pandas as pd

            tables.append(pd.DataFrame([_build_pair_row(pair) for pair in self.pairs]))
            title = "identity against other compilers: the true speed-up is unknown, and the same in all groups"
            tables[-1].attrs["title"] = title
        frames = [to_texts(table) for table in tables]
        return Report(sentences=[*self.conclude(), *self.conditions], frames=frames, notes=[origin])


def _list_figures(noise: Noise) -> list[tuple[str, str, str]]:
    """List the figures of the noise as people read them: the name, the value and its meaning."""
    others = {"failed": noise.failed, "not measured yet": noise.pending}
    groups = ", ".join([str(noise.groups), *(f"{count} {state}" for state, count in others.items() if count)])
    smallest = "–" if math.isnan(noise.smallest_speedup) else f"{noise.smallest_speedup:.4f}"
    interval = f"{100 * noise.coverage_low:.1f} to {100 * noise.coverage_high:.1f} %"
    within = f"half the width of a {LEVEL:.0%} interval from the rounds of one pair alone: median over the groups"
    between = "standard deviation of the latency ratio"
    return [
        ("groups", groups, "pairs of processes that run the same block"),
        ("samples", f"{noise.samples:g} in {noise.rounds:g} rounds", "a column: median over the groups"),
        ("noise floor", format_share(noise.noise_floor), within),
        ("smallest speed-up", smallest, "distinguishable from 1 in nine groups of ten"),
        ("between processes", format_share(noise.process_sd), f"{between} of two identical processes"),
        ("between rounds", format_share(noise.round_sd), f"{between} within a group: median over the groups"),
        ("drift", format_share(noise.drift), "of the latency over the groups; it cancels in speed-ups"),
        (
            "coverage",
            f"{format_share(noise.coverage, '.1f')} ({interval})",
            f"share of {LEVEL:.0%} intervals that cover 1, with its own {LEVEL:.0%} interval",
        ),
        ("coverage, rounds alone", format_share(noise.coverage_within), "the same without an allowance for processes"),
        (
            "contended",
            format_share(noise.contended_share),
            "share of samples from rounds in which other work used the cores",
        ),
    ]


def _describe_pairs(pairs: Sequence[Pair]) -> list[str]:
    """Describe how well the speed-up of each compiler is known here, and where that is less than its intervals say."""
    measured = [pair for pair in pairs if not pair.problem]
    quiet = {pair.compiler: pair for pair in measured if not pair.beside_busy}
    precisions = [
        f"± {format_share(pair.half_width, '.2g')} for {name}" for name, pair in quiet.items() if pair.half_width > 0
    ]
    sentences = []
    if precisions:
        sentences.append(
            f"Between two programs it takes more: a speed-up over identity is known to {' and '.join(precisions)} "
            "here, in nine groups of ten; smaller differences between two runs are noise."
        )
    for pair in measured:
        where = " beside a busy process" if pair.beside_busy else ""
        inconclusive = (
            f"{pair.inconclusive} of {pair.groups} groups of {pair.compiler}{where} are marked as not conclusive"
        )
        if pair.beside_busy and pair.compiler in quiet:
            change = pair.speedup / quiet[pair.compiler].speedup
            sentences.append(f"The speed-up of {pair.compiler} over identity is {change:.2f} times as high{where}.")
        if pair.inconclusive:
            sentences.append(f"{inconclusive}: too few of their rounds were uncontended.")
        if pair.inconclusive < pair.groups and estimate_share(pair.agreeing, pair.judged, LEVEL)[2] < LEVEL:
            sentences.append(
                f"Only {pair.agreeing} of {pair.judged} intervals of {pair.compiler} over identity{where} contain what "
                f"the {'quiet' if pair.beside_busy else 'other'} groups measured: they are too narrow."
            )
    return sentences


def _describe_waves(check: SelfCheck) -> Iterator[str]:
    """Describe what narrower intervals cost here, in waves of groups like those of the check."""
    for pair in check.pairs:
        if pair.beside_busy or not pair.half_width > 0:
            continue
        floor, costs = find_quantile(LEVEL) * check.hours.get(pair.compiler, 0.0), []
        for width in _WIDTHS:
            room = width**2 - floor**2
            waves = math.ceil(pair.half_width**2 / room) if room > 0 else math.inf
            if math.isinf(waves):
                costs.append(f"± {format_share(width)} no number of them")
                continue
            duration = "" if math.isnan(check.group_s) else f" ({format_duration(waves * check.group_s)})"
            costs.append(f"± {format_share(width)} {waves}{duration}")
        hours = f"; hours change it by ± {format_share(floor, '.2g')}" if floor else ""
        yield f"In waves of such groups, the speed-up of {pair.compiler} takes for {', for '.join(costs)}{hours}."


def _find_disturbances(noise: Noise) -> Iterator[str]:
    """Find what disturbed the groups, in a few words each."""
    if noise.contended_share > QUIET:
        yield f"{100 * noise.contended_share:.0f} % of the samples were contended"
    if noise.drift > UNSTEADY:
        yield f"the latency moved by {100 * noise.drift:.0f} % over the groups"


def _warn_of_other_programs(check: SelfCheck) -> list[str]:
    """Warn of what two copies cannot show, where there was something to show."""
    reasons = list(_find_disturbances(check.quiet))
    if not reasons:
        return []
    spreads = [f"that of two copies of identity by {format_share(check.quiet.process_sd, '.2g')}"]
    spreads += [
        f"that of identity to {pair.compiler} by {format_share(pair.group_sd, '.2g')}"
        for pair in check.pairs
        if not pair.problem and not pair.beside_busy
    ]
    return [
        f"{' and '.join(reasons).capitalize()}. Two copies of one program suffer alike from that, and two different "
        f"programs do not. Ratios varied from group to group, {', '.join(spreads)} (standard deviations beyond what "
        "the rounds explain). Trust what a run marks as conclusive, or wait until the machine is quiet."
    ]


def _build_noise_table(check: SelfCheck) -> pd.DataFrame:
    """Build a table with one row a figure, and one column for the quiet and for the contended groups each."""
    import pandas as pd

    columns = {"quiet": check.quiet, "beside a busy process": check.contended}
    names, _, meanings = zip(*_list_figures(check.quiet), strict=True)
    values = {
        name: [value for _, value, _ in _list_figures(noise)] for name, noise in columns.items() if noise is not None
    }
    table = pd.DataFrame({"figure": names, **values, "meaning": meanings})
    table.attrs["title"] = f"identity against identity: {check.device}, {check.chip}, {check.threads} threads"
    return table


def _build_pair_row(pair: Pair) -> dict[str, str]:
    keys = {"compiler": pair.compiler + (", beside a busy process" if pair.beside_busy else "")}
    if pair.problem:
        blank = dict.fromkeys(("speed-up", "groups", "not conclusive", "between groups", "one group", "agreeing"), "–")
        return {**keys, **blank, "": pair.problem}
    has_converged = pair.inconclusive < pair.groups
    return {
        **keys,
        "speed-up": str(Estimate(pair.speedup, pair.low, pair.high, conclusive=has_converged)),
        "groups": str(pair.groups),
        "not conclusive": str(pair.inconclusive),
        "between groups": format_share(pair.group_sd, ".2g"),
        "one group": f"± {format_share(pair.half_width, '.2g')}",
        "agreeing": f"{pair.agreeing} of {pair.judged}",
        "": "",
    }
