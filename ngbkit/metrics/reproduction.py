"""Judges the findings of a run by another run of its sweep: which of them hold on the other machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ngbkit.dataset.long_form import list_factors, list_labels
from ngbkit.dataset.selection import select
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import MetricError
from ngbkit.metrics.estimate import Estimate
from ngbkit.metrics.metric import load_frame_metrics
from ngbkit.metrics.pairing import VALUES, compute_values
from ngbkit.metrics.rankings.contests import Contest, list_contests
from ngbkit.metrics.rankings.networks import compare_networks
from ngbkit.metrics.rankings.reversals import reversals
from ngbkit.sweep.column import BASELINE
from ngbkit.user_text import format_count, format_network

if TYPE_CHECKING:
    pass

Verdict = Literal["holds", "does not hold", "not conclusive here", "not measured here", "not conclusive as published"]
_HOLDS: Verdict = "holds"
FAILS: Verdict = "does not hold"
"""The verdict on a finding of which the second run has the opposite."""
_OPEN: Verdict = "not conclusive here"
_ABSENT: Verdict = "not measured here"
_NO_FINDING: Verdict = "not conclusive as published"
# The verdicts in the singular and in the plural.
_COUNTED = {
    _HOLDS: ("holds", "hold"),
    FAILS: ("does not hold", "do not hold"),
    _OPEN: ("is not conclusive here", "are not conclusive here"),
    _ABSENT: ("was not measured here", "were not measured here"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproducedFinding:
    """A finding of the first run, and the answer of the second."""

    subject: str  # the network with its factors and the batch size
    claim: str  # such as "openvino is faster than the baseline"
    first: str  # the number behind it in the first run with its interval
    second: str  # that in the second; empty where there is none
    verdict: Verdict  # a speed-up that the first run did not measure beyond chance is no finding

    def to_row(self, names: tuple[str, str]) -> dict[str, str]:
        """Format it as a row of a table, whose columns are named after the two runs."""
        return {
            "network": self.subject,
            "finding": self.claim,
            names[0]: self.first,
            names[1]: self.second,
            "verdict": self.verdict,
        }


def list_findings(first: Data, second: Data) -> list[ReproducedFinding]:
    """Judge the conclusive findings of a run, one device after the other, by another run of its sweep, on one device.

    These are each speed-up beyond chance, the fastest compiler of each group, the fastest network, and each reversal of
    an order. One holds if the second run has it as conclusively, and does not if that has the opposite as conclusively.
    """
    devices = list_labels(first, "device")
    if len(devices) > 1:
        parts = {label: list_findings(select(first, device=[label]), second) for label in devices}
        return [replace(row, subject=f"{label}: {row.subject}") for label, rows in parts.items() for row in rows]
    return [
        *_judge_speedups(first, second),
        *_judge_contests(first, second),
        *_judge_reversals(first, second),
    ]


def summarize(findings: Sequence[ReproducedFinding]) -> str:
    """Count the findings by verdict in a sentence."""
    counts = Counter(finding.verdict for finding in findings)
    parts = [f"{count} {_COUNTED[verdict][count > 1]}" for verdict in _COUNTED if (count := counts[verdict])]
    total = counts.total() - counts[_NO_FINDING]
    text = f"Of {total} findings, {', '.join(parts)}." if total else "The published run has no conclusive finding."
    others = format_count(counts[_NO_FINDING], "published speed-up is", "published speed-ups are")
    return f"{text} {others} not conclusive." if counts[_NO_FINDING] else text


def _judge_speedups(first: Data, second: Data) -> Iterator[ReproducedFinding]:
    """Judge each speed-up whose interval excludes 1."""
    measured = _list_speedups(second)
    for key, row in _list_speedups(first).items():
        direction, other = _find_direction(row), measured.get(key, {})
        has_value = bool(np.isfinite(other.get("value", np.nan)))
        answer = _find_direction(other) if has_value else ""
        verdict = _ABSENT if not has_value else _HOLDS if answer == direction else FAILS if answer else _OPEN
        compiler = row["compiler"]
        factors = {name: value for name, value in key if name not in ("workload", "compiler", "batch_size")}
        yield ReproducedFinding(
            subject=f"{format_network(str(row['workload']), factors)}, batch {row['batch_size']}",
            claim=f"{compiler} is {direction} than the baseline" if direction else f"speed-up of {compiler}",
            first=_format(row),
            second=_format(other) if has_value else str(other.get("reason", "")),
            verdict=verdict if direction else _NO_FINDING,
        )


def _list_speedups(data: Data) -> dict[tuple[tuple[str, str], ...], dict[Any, Any]]:
    """List the speed-up of each trial by its labels, whatever its device; none without the baseline."""
    try:
        values = compute_values(data, load_frame_metrics()["speedup"])
    except MetricError:
        return {}
    labels = [str(name) for name in values if name not in (*VALUES, "device")]
    return {
        tuple(sorted((name, str(row[name])) for name in labels if row[name] == row[name])): row
        for row in values.to_dict("records")
        if row["compiler"] != BASELINE
    }


def _find_direction(row: Mapping[Any, Any]) -> str:
    """Find the direction in which a speed-up surely differs from 1; empty if in none."""
    if not row["conclusive"] or row["unchecked"]:
        return ""
    return "faster" if row["low"] > 1 else "slower" if row["high"] < 1 else ""


def _format(row: Mapping[Any, Any]) -> str:
    return str(Estimate(row["value"], row["low"], row["high"], conclusive=row["conclusive"]))


def _judge_contests(first: Data, second: Data) -> Iterator[ReproducedFinding]:
    """Judge which compiler of each network, and which network, is surely the fastest."""
    contests = {_identify_contest(contest): contest for contest in list_contests(second)}
    for contest in list_contests(first):
        if not contest.conclusive:
            continue
        (winner, *_), other = _list_rivals(contest), contests.get(_identify_contest(contest))
        if other is None or winner not in _list_rivals(other):
            verdict: Verdict = _ABSENT
        elif not other.conclusive:
            verdict = _OPEN
        else:
            verdict = _HOLDS if _list_rivals(other)[0] == winner else FAILS
        _, network, batch_size = _identify_contest(contest)
        yield ReproducedFinding(
            subject=f"{network or 'all networks'}, batch {batch_size}",
            claim=f"{winner} is the fastest {contest.subject}",
            first=_describe_lead(contest),
            second="" if other is None else _describe_lead(other),
            verdict=verdict,
        )


def _identify_contest(contest: Contest) -> tuple[str, str, int]:
    network = contest.first.network if contest.subject == "compiler" else ""
    return contest.subject, network, contest.batch_size


def _list_rivals(contest: Contest) -> list[str]:
    """List the compilers or the networks of a contest, its winner first."""
    return [each.compiler if contest.subject == "compiler" else each.network for each in contest.columns]


def _describe_lead(contest: Contest) -> str:
    """Describe the lead of the fastest over the next."""
    winner, rival, *_ = _list_rivals(contest)
    return f"{winner}, {contest.comparisons[0].estimate} times {rival}"


def _judge_reversals(first: Data, second: Data) -> Iterator[ReproducedFinding]:
    """Judge each reversal that is surely real and of trials that were checked."""
    try:
        published = reversals(first, unlike="mask")
    except MetricError:
        return
    rows = published[published["conclusive"].astype(bool)].to_dict("records")
    if not rows:
        return
    factors = list_factors(first)
    try:
        repeated = reversals(second, unlike="mask").to_dict("records")
    except MetricError:
        repeated = []
    probabilities = {_identify_reversal(row, factors): row["probability"] for row in repeated}
    orders = _list_orders(second, {row[name] for row in rows for name in ("compiler_1", "compiler_2")})
    for row in rows:
        values = {name: row[name] for name in factors if row[name] == row[name]}
        pair = [format_network(row[name], values) for name in ("workload_a", "workload_b")]
        compilers = (row["compiler_1"], row["compiler_2"])
        winners = [orders.get((frozenset(pair), compiler, row["batch_size"])) for compiler in compilers]
        answers = [f"{winner} with {name}" for winner, name in zip(winners, compilers, strict=True) if winner]
        verdict: Verdict = _OPEN
        if probabilities.get(_identify_reversal(row, factors), 0.0) >= LEVEL:
            verdict = _HOLDS
        elif None in winners:
            verdict = _ABSENT
        elif winners[0] == winners[1] != "":
            verdict = FAILS
        yield ReproducedFinding(
            subject=f"{' and '.join(pair)}, batch {row['batch_size']}",
            claim=f"their order differs between {' and '.join(compilers)}",
            first=f"{row['ratio_1']:.2f} and {row['ratio_2']:.2f}",
            second=", ".join(answers),
            verdict=verdict,
        )


def _identify_reversal(row: Mapping[Any, Any], factors: Sequence[str]) -> tuple[Any, ...]:
    values = tuple(str(row.get(name)) for name in factors)
    compilers = frozenset((row["compiler_1"], row["compiler_2"]))
    return frozenset((row["workload_a"], row["workload_b"])), values, row["batch_size"], compilers


def _list_orders(data: Data, compilers: Collection[str]) -> dict[tuple[frozenset[str], str, int], str]:
    """List the surely faster network by pair, compiler and batch size; empty where neither is."""
    orders = {}
    for compiler in set(list_labels(data, "compiler")).intersection(compilers):
        with suppress(MetricError):
            for row in compare_networks(data, compiler, unlike="mask").to_dict("records"):
                pair = frozenset((row["network_a"], row["network_b"]))
                orders[pair, compiler, row["batch_size"]] = str(row["network_a"]) if row["conclusive"] else ""
    return orders
