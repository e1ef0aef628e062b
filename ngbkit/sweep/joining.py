"""Records of several sessions that measured one trial: joined, or the later one in place of the earlier."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ngbkit.sweep.records import Measurement, Record

# Of two sessions: what the first one tells, and what both do.
_OF_THE_FIRST = ("compile_time_s", "first_call_time_s", "compile_time_warm_s")
_SHARES = ("foreign_percent", "steal_percent", "throttled_percent", "unusual_percent")


def join(first: Record, second: Record) -> Record:
    """Join two records of a trial: a measurement has the rounds of both sessions, the first session's before."""
    if not isinstance(first, Measurement) or not isinstance(second, Measurement):
        return first if isinstance(first, Measurement) else second
    present, weights = frozenset(first.rounds), (len(first.rounds), len(second.rounds))
    if present <= frozenset(second.rounds):
        return second
    added = [index for index, number in enumerate(second.rounds) if number not in present]
    places = {index: len(first.rounds) + place for place, index in enumerate(added)}
    # What the first left in a cache makes the second one faster.
    joined: dict[str, Any] = {name: getattr(first, name) for name in _OF_THE_FIRST}
    joined |= {name: _average((getattr(first, name), getattr(second, name)), weights) for name in _SHARES}
    joined["facts"] = {**second.facts, **_join_facts(first, second)}
    return replace(
        second,
        latency_s=(*first.latency_s, *(second.latency_s[index] for index in added)),
        rounds=(*first.rounds, *(second.rounds[index] for index in added)),
        contended_samples=(
            *first.contended_samples,
            *(places[index] for index in second.contended_samples if index in places),
        ),
        stopped=first.stopped and second.stopped,
        profile=second.profile or first.profile,
        **joined,
    )


def _average(values: tuple[float | None, float | None], weights: tuple[int, int]) -> float | None:
    """Average what both sessions tell; what only one does counts for both."""
    present = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None]
    total = sum(weight for _, weight in present)
    return sum(value * weight for value, weight in present) / total if total else None


def _join_facts(first: Measurement, second: Measurement) -> dict[str, Any]:
    """Join the facts that are of all samples: the time of the calls, and what the probes of the host read."""
    sessions = (first, second)
    times = [record.facts["called_s"] for record in sessions if "called_s" in record.facts]
    facts: dict[str, Any] = {"called_s": sum(times)} if len(times) == len(sessions) else {}
    hosts = [record.facts.get("host") or {} for record in sessions]
    if all(sum(host.get("samples", ())) == len(each.rounds) for host, each in zip(hosts, sessions, strict=True)):
        facts["host"] = {name: [*hosts[0][name], *hosts[1][name]] for name in hosts[0].keys() & hosts[1].keys()}
    return facts


def replace_by(first: Record, second: Record) -> Record:
    """Replace a record of a trial by that of another attempt, unless this was stopped without more rounds."""
    if not isinstance(first, Measurement) or not isinstance(second, Measurement) or not second.stopped:
        return second
    is_longer = first.stopped and len(frozenset(first.rounds)) < len(frozenset(second.rounds))
    return second if is_longer else first
