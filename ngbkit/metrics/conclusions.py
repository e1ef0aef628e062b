"""The conclusions of a run, in sentences: the fastest, what is not conclusive, the next step."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.contention import find_uncontended
from ngbkit.dataset.long_form import list_labels, to_frame
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL
from ngbkit.metrics.disturbances import average_percent, describe_allowance, describe_faults, describe_states
from ngbkit.metrics.estimate import Estimate
from ngbkit.metrics.originals import PRECISION_GAIN
from ngbkit.metrics.paired_accuracy import describe_losses
from ngbkit.metrics.rankings.candidates import RankingCandidate
from ngbkit.metrics.rankings.contests import Contest, list_contests
from ngbkit.metrics.rankings.networks import NetworkComparison
from ngbkit.metrics.rankings.settling import MOST_WAVES, plan_waves
from ngbkit.metrics.unchecked import count_measured, list_unchecked, name_rows
from ngbkit.report import Report
from ngbkit.sweep.column import Column
from ngbkit.sweep.records import INCONCLUSIVE, MEASURED, NOT_CHECKED
from ngbkit.user_text import format_count, format_duration

# A verdict names so many winners, and so many groups without any; its details have so many groups.
_MOST, _MOST_GROUPS = 2, 12
_CLAMPED, _UNASKED = '"clamped"', '"default_precision"'
_MANNERS = {
    "side by side": "",
    "normalised by anchors": ", normalised by anchors",
    "minutes apart": ", measured minutes apart",
}


def conclude(data: Data) -> Report:
    """Draw the conclusions that the intervals of a run allow; empty for a run without rounds or without rivals.

    Of several compilers of a group one is the fastest if it is surely faster than each other one that was checked, and
    than each that was not. Networks without factors compete by the fastest compiler of each.
    """
    unchecked, contended, contests = list_unchecked(data), _list_inconclusive(data), list_contests(data)
    with_device = len({label for node in nodes(data).values() for label in list_labels(node, "device")}) > 1
    run_id = str(data.attrs.get("run_id") or "RUN")
    run = "RUN" if ", " in run_id else run_id
    is_paused = average_percent([*nodes(data).values()], "throttled_percent") >= 1
    writer = _Writer(run=run, with_device=with_device, is_paused=is_paused, total=count_measured(data))
    sentences = [
        writer.describe_winners(contests),
        writer.describe_doubts(contests, unchecked, contended),
        describe_losses(data),
        *describe_unasked_precision(data),
        *describe_faults(data),
    ]
    details = [
        *writer.describe_groups(contests),
        *describe_clamped(data),
        *_describe_batches(data),
        *describe_states(data),
        *describe_allowance(data),
    ]
    return Report(
        sentences=list(filter(None, sentences)),
        next=writer.advise(data, contests, unchecked, contended),
        more=Report(notes=details),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writer:
    """Writes the sentences of one run."""

    run: str
    with_device: bool  # whether there are several
    is_paused: bool  # by the quota of a container
    total: int  # of the trials that were measured

    def describe_winners(self, contests: Sequence[Contest]) -> str:
        """Describe the fastest compilers and networks with their leads; empty if none is sure."""
        parts = []
        for subject, noun in (("compiler", "Fastest"), ("network", "Fastest network")):
            winners, total = _group_wins(contests, subject), sum(contest.subject == subject for contest in contests)
            texts = [self._describe_wins(name, wins, total) for name, wins in winners[:_MOST]]
            texts += [f"{len(winners) - _MOST} others elsewhere"] if len(winners) > _MOST else []
            parts += [f"{noun}: {'; '.join(texts)}."] if texts else []
        return " ".join(parts)

    def _describe_wins(self, name: str, wins: Sequence[Contest], total: int) -> str:
        """Describe the groups of a winner, and its leads over the next in them."""
        leads = sorted(contest.comparisons[0].estimate for contest in wins)
        if len(wins) == 1:
            (win,) = wins
            place = f"for {self._name_place(win)}" if win.subject == "compiler" else self._name_cell(win)
            return f"{name} {place}, {leads[0]} times {_name_column(win, win.comparisons[0].second)}"
        groups = f"{len(wins)} of {total}" if len(wins) < total else f"all {total}" if total > 2 else "both"
        span = " to ".join(dict.fromkeys((f"{leads[0]}", f"{leads[-1]}")))
        return f"{name} in {groups} groups, {span} times the next"

    def describe_doubts(
        self, contests: Sequence[Contest], unchecked: dict[str, list[str]], contended: Sequence[str]
    ) -> str:
        """Describe what is not conclusive; empty if all is."""
        undecided = [contest for contest in contests if not contest.conclusive]
        parts = []
        if undecided:
            names = "; ".join(f"{self._name_place(contest)}: {_describe_rivals(contest)}" for contest in undecided)
            text = f"the fastest in {len(undecided)} of {len(contests)} groups"
            parts.append(f"{text} ({names})" if len(undecided) <= _MOST else text)
        if contended and not undecided:
            parts.append(f"{len(contended)} of {self.total} trials, of which too few rounds were uncontended")
        text = f"Not conclusive: {', and '.join(parts)}." if parts else ""
        count = sum(map(len, unchecked.values()))
        checks = f"Not checked: {count} of {self.total} trials, which are never called the fastest." if count else ""
        return " ".join(filter(None, [text, checks]))

    def advise(
        self, data: Data, contests: Sequence[Contest], unchecked: dict[str, list[str]], contended: Sequence[str]
    ) -> str:
        """Name the one measurement that removes most doubt; empty without any."""
        if unchecked:
            return (
                "Next: remove the reason why trials were not checked, and run again; "
                f"`ngbkit runs --resume {self.run} --retry {NOT_CHECKED}` repeats those of an unchanged network."
            )
        if contended and self.is_paused:
            return (
                "Next: raise the container's quota, which paused it (`docker run --cpus`, the limit of a pod), then "
                f"`ngbkit runs --resume {self.run} --retry {INCONCLUSIVE}`."
            )
        if contended:
            return f"Next: when the machine is quiet, `ngbkit runs --resume {self.run} --retry {INCONCLUSIVE}`."
        if not any(contest.rivals for contest in contests):
            return ""
        plan = plan_waves(data, contests)
        if plan.open:
            count, duration = format_count(plan.waves, "more wave"), format_duration(plan.seconds)
            return f"Next: `ngbkit runs --settle {self.run}` measures {count} of these, about {duration}."
        if plan.floor:
            return f"Choose any of these: hours change ratios here by up to {100 * plan.floor:.1g} %."
        return f"Choose any of these: {MOST_WAVES} waves would not tell them apart."

    def describe_groups(self, contests: Sequence[Contest]) -> list[str]:
        """Describe each contest that the verdict only counts in a sentence, the undecided ones first."""
        undecided = [contest for contest in contests if not contest.conclusive]
        wins = [wins for subject in ("compiler", "network") for _, wins in _group_wins(contests, subject)[:_MOST]]
        single = [group[0] for group in wins if len(group) == 1 and not _MANNERS[group[0].comparisons[0].lead.compared]]
        detailed = [*single, *(undecided if len(undecided) <= _MOST else [])]
        counted = [contest for contest in contests if contest not in detailed]
        ordered = sorted(counted, key=lambda contest: contest.conclusive)
        more = [f"{len(ordered) - _MOST_GROUPS} more groups"] if len(ordered) > _MOST_GROUPS else []
        return [*map(self._describe_group, ordered[:_MOST_GROUPS]), *more]

    def _describe_group(self, contest: Contest) -> str:
        place, closest = self._name_place(contest), contest.comparisons[0]
        if not contest.conclusive:
            return f"{place}: not conclusive, {_describe_rivals(contest)}."
        manner = _MANNERS[closest.lead.compared]
        lead = f"{closest.estimate} times {_name_column(contest, closest.second)}{manner}"
        return f"{place}: {_name_column(contest, contest.first)} is the fastest, {lead}."

    def _name_place(self, contest: Contest) -> str:
        if contest.subject == "network":
            return f"networks {self._name_cell(contest)}"
        device = f" on {contest.device}" if self.with_device else ""
        return f"{contest.first.network}{device} batch {contest.batch_size}"

    def _name_cell(self, contest: Contest) -> str:
        return f"at batch {contest.batch_size}" + (f" on {contest.device}" if self.with_device else "")


def _group_wins(contests: Sequence[Contest], subject: str) -> list[tuple[str, list[Contest]]]:
    """Group the conclusive contests of compilers or networks by their winner, the most frequent winner first."""
    winners: dict[str, list[Contest]] = {}
    for contest in contests:
        if contest.subject == subject and contest.conclusive:
            winners.setdefault(getattr(contest.first, subject), []).append(contest)
    return sorted(winners.items(), key=lambda item: -len(item[1]))


def _describe_rivals(contest: Contest) -> str:
    """Describe between which columns a contest is undecided, and why."""
    if not contest.first.checked:
        return f"none of {len(contest.comparisons) + 1} was checked"
    names = [_name_column(contest, comparison.second) for comparison in contest.rivals]
    columns = f"{_name_column(contest, contest.first)} or {' or '.join(names[:_MOST])}"
    columns += f" or {len(names) - _MOST} more" if len(names) > _MOST else ""
    return f"{columns}, {_explain(contest, contest.rivals[0])}"


def _explain(contest: Contest, comparison: NetworkComparison) -> str:
    """Explain why a comparison of a contest is not conclusive."""
    estimate = comparison.estimate
    ratio = str(Estimate(float(estimate), estimate.low, estimate.high))
    if not comparison.second.checked:
        return "which was not checked"
    if math.isnan(comparison.probability):
        return "too few rounds for an interval"
    if comparison.conclusive and contest.chance > 1 - LEVEL:
        return f"{ratio} times as fast, which chance may show in {contest.family} groups"
    if estimate.low <= 1 <= estimate.high:
        return f"{ratio} times as fast{_MANNERS[comparison.lead.compared]}"
    if estimate.conclusive:
        return f"{ratio} times as fast in {comparison.lead.rounds} rounds, each much like the one before"
    return f"{ratio} times as fast in too few uncontended rounds"


def _name_column(contest: Contest, column: RankingCandidate) -> str:
    """Name a column: a compiler, or a network with its compiler where they differ."""
    if contest.subject == "compiler":
        return column.compiler
    columns = [contest.first, *(comparison.second for comparison in contest.comparisons)]
    differ = len({each.compiler for each in columns}) > 1
    return f"{column.network} ({column.compiler})" if differ else column.network


def _describe_batches(data: Data) -> list[str]:
    """Describe the networks whose batch size is fixed, as they were seen to behave."""
    reasons = {
        f"{name}: {reason}."
        for node in nodes(data).values()
        if "fixed_batch" in node.coords
        for name, column in node["fixed_batch"].groupby("workload")
        for reason in column.values.ravel()
        if reason
    }
    return sorted(reasons)


def _list_inconclusive(data: Data) -> list[str]:
    """The trials with too few uncontended rounds, by name."""
    frames = []
    for node in nodes(data).values():
        if "status" in node:
            frame = to_frame(xr.Dataset({"uncontended": find_uncontended(node), "status": node["status"]}))
            frames.append(frame[~frame["uncontended"].astype(bool) & frame["status"].isin(MEASURED)])
    return [trial for trial, _ in name_rows(data, frames)]


def describe_clamped(data: Data) -> list[str]:
    """Describe each column whose quantiser clamped constants of a network in a sentence, whatever its batch size."""
    sentences: dict[str, None] = {}
    for row, facts in _iterate_facts(data, _CLAMPED):
        if clauses := (facts.get("quantised") or {}).get("clamped"):
            sentences[f"Changed by {row['compiler']} on {row['workload']}: {'; '.join(map(str, clauses))}."] = None
    return list(sentences)


def describe_unasked_precision(data: Data) -> list[str]:
    """Describe which columns their runtime, left alone, computes in a lower precision, and the column of that."""
    present = {label for node in nodes(data).values() for label in list_labels(node, "compiler")}
    sentences: dict[str, None] = {}
    for row, facts in _iterate_facts(data, _UNASKED):
        column, precision = Column.read(row["compiler"]), str(facts["default_precision"])
        if column.precision or precision == json.loads(row.get("contract") or "{}").get("precision"):
            continue
        lower = replace(column, precision=precision).label
        gains = [str(gain) for gain in _list_gains(data, lower)] if lower in present else []
        lead = " to ".join(dict.fromkeys([str(gains[0]), str(gains[-1])])) if gains else ""
        remedy = f"add it by -c '{lower}'" if lower not in present else f"as {lower}"
        remedy += f", {lead} times as fast" if lead else ""
        sentences[f"{column.compiler}, left alone, computes in {precision} on this chip: {remedy}."] = None
    return list(sentences)


def _list_gains(data: Data, label: str) -> list[Estimate]:
    """List the gains of a column over its f32, from the least."""
    gains: list[Estimate] = []
    for node in nodes(data).values():
        if label in list_labels(node, "compiler") and "round" in node:
            gain = PRECISION_GAIN.compute_masked(node, ci=LEVEL).sel(compiler=[label])
            frame = to_frame(gain.to_dataset() if isinstance(gain, xr.DataArray) else gain)
            columns = [frame[name] for name in ("precision_gain", "ci_low", "ci_high", "conclusive")]
            gains += [Estimate(*cells) for cells in zip(*columns, strict=True)]
    return sorted(gain for gain in gains if math.isfinite(gain))


def _iterate_facts(data: Data, key: str) -> Iterator[tuple[dict[Any, Any], dict[str, Any]]]:
    """Iterate over the trials whose facts have a key, with their facts."""
    for node in nodes(data).values():
        if "facts" in node and any(key in str(text) for text in node["facts"].values.ravel()):
            frame = to_frame(xr.Dataset({name: node[name] for name in ("facts", "contract") if name in node}))
            for row in frame[frame["facts"].str.contains(key)].to_dict("records"):
                yield row, json.loads(row["facts"])
