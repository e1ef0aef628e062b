"""Judges the findings of a run by another run of its sweep: which of them hold on the other machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from ngbkit.dataset.long_form import list_factors, list_labels
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import MetricError
from ngbkit.metrics.estimate import Estimate
from ngbkit.metrics.metric import load_frame_metrics
from ngbkit.metrics.pairing import compute_values
from ngbkit.metrics.rankings.contests import Contest, list_contests
from ngbkit.metrics.rankings.networks import compare_networks
from ngbkit.metrics.rankings.reversals import reversals
from ngbkit.sweep.column import BASELINE
from ngbkit.user_text import format_count, format_network

if TYPE_CHECKING:
    import pandas as pd

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
_METRIC = "speedup"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproducedFinding:
    """A finding of the first run, and the answer of the second.

    Parameters
    ----------
    subject
        The network with its factors and the batch size.
    claim
        The finding, such as ``"openvino is faster than the baseline"``.
    first, second
        The number behind it in either run with its interval; empty where there is none.
    verdict
        Whether it holds in the second run; a speed-up that the first run did not measure beyond chance is no finding.
    """

    subject: str
    claim: str
    first: str
    second: str
    verdict: Verdict

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
    """Judge the conclusive findings of a run by another run of its sweep, on one device.

    Parameters
    ----------
    first
        The run whose findings are judged: each speed-up beyond chance, the fastest compiler of each group, the fastest
        network, and each reversal of the order of two networks between two compilers. Those of several devices are
        judged one device after the other.
    second
        The other run, on one device, whatever its label.

    Returns
    -------
    list of ReproducedFinding
        A finding holds if the second run has it as conclusively, and does not if it has the opposite as conclusively.
    """
    parts = _split_devices(first)
    findings = []
    for label, part in parts.items():
        rows = [
            *_judge_speedups(part, second),
            *_judge_contests(part, second),
            *_judge_reversals(part, second),
        ]
        prefix = f"{label}: " if len(parts) > 1 else ""
        findings += [replace(row, subject=f"{prefix}{row.subject}") for row in rows]
    return findings


def summarize(findings: Sequence[ReproducedFinding]) -> str:
    """Count the findings by verdict in a sentence."""
    counts = Counter(finding.verdict for finding in findings)
    parts = [f"{count} {_COUNTED[verdict][count > 1]}" for verdict in _COUNTED if (count := counts[verdict])]
    total = counts.total() - counts[_NO_FINDING]
    text = f"Of {total} findings, {', '.join(parts)}." if total else "The published run has no conclusive finding."
    others = format_count(counts[_NO_FINDING], "published speed-up is", "published speed-ups are")
    return f"{text} {others} not conclusive." if counts[_NO_FINDING] else text


def _split_devices(data: Data) -> dict[str, Data]:
    """Split a dataset or a tree by device."""
    labels = list_labels(data, "device")
    if len(labels) < 2:
        return dict.fromkeys(labels or [""], data)
    return {label: _select_device(data, label) for label in labels}


def _select_device(data: Data, label: str) -> Data:
    def select(node: xr.Dataset) -> xr.Dataset:
        return node.sel(device=[label]) if "device" in node.dims else node

    return select(data) if isinstance(data, xr.Dataset) else data.map_over_datasets(select)


def _judge_speedups(first: Data, second: Data) -> Iterator[ReproducedFinding]:
    """Judge each speed-up whose interval excludes 1."""
    metric = load_frame_metrics()[_METRIC]
    try:
        published = compute_values(first, metric, LEVEL)
    except MetricError:  # without the baseline there are no speed-ups
        return
    try:
        values = compute_values(second, metric, LEVEL)
        measured = {_identify(row): row for row in _list_rows(values)}
    except MetricError:
        measured = {}
    for row in _list_rows(published):
        if row["compiler"] == BASELINE:
            continue
        direction = _find_direction(row)
        other = measured.get(_identify(row), {})
        has_value = bool(np.isfinite(other.get("value", np.nan)))
        answer = _find_direction(other) if has_value else ""
        verdict = _ABSENT if not has_value else _HOLDS if answer == direction else FAILS if answer else _OPEN
        yield ReproducedFinding(
            subject=_name_trial(row),
            claim=f"{row['compiler']} is {direction} than the baseline"
            if direction
            else f"speed-up of {row['compiler']}",
            first=_format(row),
            second=_format(other) if has_value else str(other.get("reason", "")),
            verdict=verdict if direction else _NO_FINDING,
        )


def _list_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def _find_direction(row: Mapping[str, Any]) -> str:
    """Find the direction in which a speed-up surely differs from 1; empty if in none."""
    if not row["conclusive"] or row["unchecked"]:
        return ""
    return "faster" if row["low"] > 1 else "slower" if row["high"] < 1 else ""


def _identify(row: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Identify a trial by its labels, whatever its device."""
    values = ("value", "low", "high", "conclusive", "rounds", "reason", "unchecked", "contract", "device")
    return tuple(sorted((name, str(value)) for name, value in row.items() if name not in values and value == value))


def _name_trial(row: Mapping[str, Any]) -> str:
    usual = {"workload", "compiler", "batch_size"}
    factors = {name: value for name, value in _identify(row) if name not in usual}
    return _name(format_network(str(row["workload"]), factors), row["batch_size"])


def _name(network: str, batch_size: object) -> str:
    return f"{network}, batch {batch_size}"


def _format(row: Mapping[str, Any]) -> str:
    return str(Estimate(row["value"], row["low"], row["high"], conclusive=row["conclusive"]))


def _judge_contests(first: Data, second: Data) -> Iterator[ReproducedFinding]:
    """Judge which compiler of each network, and which network, is surely the fastest."""
    contests = {_identify_contest(contest): contest for contest in list_contests(second)}
    for contest in list_contests(first):
        if not contest.conclusive:
            continue
        winner, other = _name_winner(contest), contests.get(_identify_contest(contest))
        if other is None or winner not in _list_rivals(other):
            verdict: Verdict = _ABSENT
        elif not other.conclusive:
            verdict = _OPEN
        else:
            verdict = _HOLDS if _name_winner(other) == winner else FAILS
        is_network = contest.subject == "network"
        yield ReproducedFinding(
            subject=_name("all networks" if is_network else contest.first.network, contest.batch_size),
            claim=f"{winner} is the fastest {contest.subject}",
            first=_describe_lead(contest),
            second="" if other is None else _describe_lead(other),
            verdict=verdict,
        )


def _identify_contest(contest: Contest) -> tuple[str, str, int]:
    network = contest.first.network if contest.subject == "compiler" else ""
    return contest.subject, network, contest.batch_size


def _name_winner(contest: Contest) -> str:
    return contest.first.compiler if contest.subject == "compiler" else contest.first.network


def _list_rivals(contest: Contest) -> set[str]:
    candidates = [contest.first, *(comparison.second for comparison in contest.comparisons)]
    return {each.compiler if contest.subject == "compiler" else each.network for each in candidates}


def _describe_lead(contest: Contest) -> str:
    """Describe the lead of the fastest over the next."""
    comparison = contest.comparisons[0]
    rival = comparison.second.compiler if contest.subject == "compiler" else comparison.second.network
    return f"{_name_winner(contest)}, {comparison.estimate} times {rival}"


def _judge_reversals(first: Data, second: Data) -> Iterator[ReproducedFinding]:
    """Judge each reversal that is surely real and of trials that were checked."""
    try:
        published = reversals(first, probability=LEVEL, unlike="mask")
    except MetricError:
        return
    published = published[published["checked"].astype(bool) & published["probability"].notna()]
    if published.empty:
        return
    factors, orders = list_factors(first), _Orders(second)
    try:
        repeated = reversals(second, unlike="mask")
    except MetricError:
        repeated = published.iloc[:0]
    probabilities = {_identify_reversal(row, factors): row["probability"] for row in _list_rows(repeated)}
    for row in _list_rows(published):
        values = {name: row[name] for name in factors if row[name] == row[name]}
        pair = [format_network(row[name], values) for name in ("workload_a", "workload_b")]
        compilers = (row["compiler_1"], row["compiler_2"])
        probability = probabilities.get(_identify_reversal(row, factors), 0.0)
        winners = [orders.find_faster(pair, compiler, row["batch_size"]) for compiler in compilers]
        answers = [f"{winner} with {name}" for winner, name in zip(winners, compilers, strict=True) if winner]
        verdict: Verdict = _OPEN
        if probability >= LEVEL:
            verdict = _HOLDS
        elif None in winners:
            verdict = _ABSENT
        elif winners[0] == winners[1] != "":
            verdict = FAILS
        yield ReproducedFinding(
            subject=_name(" and ".join(pair), row["batch_size"]),
            claim=f"their order differs between {' and '.join(compilers)}",
            first=f"{row['ratio_1']:.2f} and {row['ratio_2']:.2f}",
            second=", ".join(answers),
            verdict=verdict,
        )


def _identify_reversal(row: Mapping[str, Any], factors: Sequence[str]) -> tuple[Any, ...]:
    values = tuple(str(row.get(name)) for name in factors)
    compilers = frozenset((row["compiler_1"], row["compiler_2"]))
    return frozenset((row["workload_a"], row["workload_b"])), values, row["batch_size"], compilers


class _Orders:
    """The orders of networks in a run, by compiler."""

    def __init__(self, data: Data) -> None:
        self._data = data
        self._rows: dict[str, list[dict[str, Any]]] = {}

    def find_faster(self, pair: Sequence[str], compiler: str, batch_size: int) -> str | None:
        """Find the network of a pair that is surely faster; empty if neither is, None if they were not compared."""
        if compiler not in self._rows:
            self._rows[compiler] = self._list_rows(compiler)
        for row in self._rows[compiler]:
            if {row["network_a"], row["network_b"]} == {*pair} and row["batch_size"] == batch_size:
                return str(row["network_a"]) if row["conclusive"] else ""
        return None

    def _list_rows(self, compiler: str) -> list[dict[str, Any]]:
        labels = list_labels(self._data, "compiler")
        if compiler not in labels:
            return []
        try:
            return _list_rows(compare_networks(self._data, compiler, unlike="mask"))
        except MetricError:
            return []
