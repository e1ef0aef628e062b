"""Known trials: what earlier runs of a device measured of a sweep, so that it need not be measured again.

A trial is known by its content: the network (`ngbkit.device.contents`), compiler with its options, batch
size, device, and how it is measured. A ratio needs its baseline in the same rounds, so a column is taken over together
with the rounds of the baseline and the anchor beside it; and where other columns of its group are to be measured, these
two are measured once more beside them, and have the rounds of both.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ngbkit.cluster import devices
from ngbkit.errors import NgbkitError
from ngbkit.runs import content_index
from ngbkit.runs.content_index import MeasuredContent
from ngbkit.runs.known_run import KnownRun
from ngbkit.sweep.column import BASELINE
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.records import Measurement, Record, join
from ngbkit.sweep.trials import Bundle, Group
from ngbkit.workloads.base import hash_json


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTrials:
    """The known trials of a sweep on one device.

    Parameters
    ----------
    records
        Their records, by the id of the trial in the new sweep; each has its `origin`.
    facts
        The facts of their networks.
    environment
        The description of the device when they were measured; empty without any.
    text
        A sentence on what is known and what is not.
    """

    records: Mapping[str, Record] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""


class EarlierRuns:
    """The earlier measurements of the networks of a run."""

    def __init__(self, run_id: str, sweep: Grid) -> None:
        self._run_id, self._sweep = run_id, sweep
        configured = devices.load()
        # An engine of the user's own cluster has no entry.
        self._settings = {label: hash_json(repr(configured.get(label))) for label in sweep.devices}

    def add(self, device: str, network: str, digest: str) -> None:
        """Add a network that the run measures on a device to the index, by the key of its facts."""
        content_index.add([MeasuredContent(digest, device, self._settings[device], network, self._run_id, time.time())])

    def find_known(
        self, device: str, description: Mapping[str, Any], contents: Mapping[str, tuple[str, str]]
    ) -> KnownTrials:
        """Find the known trials of a device with that description, by the contents of the networks."""
        reasons = [f"{json.loads(key)[0]}: {reason}" for key, (_, reason) in contents.items() if reason]
        sources = self._open_sources(device, description, contents, reasons)
        records: dict[str, Record] = {}
        for bundle in self._sweep.bundles(device):
            earlier = _take_bundle(bundle, sources, self._sweep)
            # Where all failed, the user has most likely changed something: the failures are tried again.
            records |= earlier if any(map(_is_measured, earlier.values())) else {}
        total = [trial.id for trial in self._sweep.trials(device)]
        return KnownTrials(
            records=records,
            facts={key: value for source in reversed(sources) for key, value in source.facts.items()}
            if records
            else {},
            environment=sources[0].environment if records else {},
            text=_describe([records[name] for name in total if name in records], len(total), reasons),
        )

    def _open_sources(
        self,
        device: str,
        description: Mapping[str, Any],
        contents: Mapping[str, tuple[str, str]],
        reasons: list[str],
    ) -> list[KnownRun]:
        """Open the runs that measured any of the networks and are still valid, the latest first."""
        entries: dict[str, list[tuple[str, MeasuredContent]]] = {}
        for key, (digest, _) in contents.items():
            for entry in content_index.list_runs(digest, device) if digest else ():
                if entry.run_id != self._run_id:
                    entries.setdefault(entry.run_id, []).append((key, entry))
        latest = sorted(entries.values(), key=lambda each: -each[0][1].started_at)
        sources: list[KnownRun] = []
        for networks in latest:
            if networks[0][1].settings != self._settings[device]:
                reasons.append(f"the entry of {device} in the devices file has changed")
                continue
            try:
                source = KnownRun.open(self._sweep, device, dict(networks))
            except (NgbkitError, OSError):  # removed, damaged, or of another user
                continue
            if reason := source.find_change(description) or source.find_difference(self._sweep):
                reasons.append(reason)
            else:
                sources.append(source)
                if source.inconclusive:
                    trials = "1 trial" if source.inconclusive == 1 else f"{source.inconclusive} trials"
                    verb = "is" if source.inconclusive == 1 else "are"
                    reasons.append(f"{trials} of run {source.run_id} {verb} not conclusive or complete")
                if all(trial.id in source.records for trial in self._sweep.trials(device)):
                    break  # earlier runs have nothing to add
        return sources


def _take_bundle(bundle: Bundle, sources: Sequence[KnownRun], sweep: Grid) -> dict[str, Record]:
    """Take over what is known of a bundle; all of it or nothing where its columns compete or take turns."""
    if len(bundle.groups) > 1:
        sources = [source for source in sources if source.has_same_networks(sweep)]
    elif sweep.race or sweep.profile:
        sources = [source for source in sources if {*source.sweep.compilers} == {*sweep.compilers}]
    elif not sweep.interleave:
        return {name: record for trial in bundle.trials for name, record in _take_alone(trial.id, sources)}
    elif bundle.trials[0].compiler == BASELINE:
        return _take_columns(bundle.groups[0], sources)
    for source in sources:
        if all(trial.id in source.records for trial in bundle.trials):
            anchors = [anchor.id for group in bundle.groups for anchor in group.anchors]
            names = [*(trial.id for trial in bundle.trials), *(name for name in anchors if name in source.records)]
            return {name: source.records[name] for name in names}
    return {}


def _take_alone(trial_id: str, sources: Sequence[KnownRun]) -> list[tuple[str, Record]]:
    return [(trial_id, source.records[trial_id]) for source in sources if trial_id in source.records][:1]


def _take_columns(group: Group, sources: Sequence[KnownRun]) -> dict[str, Record]:
    """Take over columns of a group, each with the rounds of the baseline and of the anchor beside it."""
    baseline, *others = group.trials
    references = [baseline.id, *([group.anchor.id] if group.anchor is not None else [])]
    complete = [source for source in sources if source.measured(references)]
    records: dict[str, Record] = {}
    beside: list[KnownRun] = []
    for trial in others:
        for source in sources:
            record = source.records.get(trial.id)
            if record is None or (isinstance(record, Measurement) and source not in complete):
                continue
            records[trial.id] = record
            if isinstance(record, Measurement) and source not in beside:
                beside.append(source)
            break
    for source in reversed(beside or complete[:1]):
        for name in references:
            record = source.records[name]
            records[name] = join(records[name], record) if name in records else record
    if baseline.id not in records:
        records |= {name: record for name, record in _take_alone(baseline.id, sources) if not _is_measured(record)}
    return records


def _is_measured(record: Record) -> bool:
    return isinstance(record, Measurement)


def _describe(records: Sequence[Record], total: int, reasons: Sequence[str]) -> str:
    """Describe how many of the trials are known, and from when; or why none is."""
    if not records:
        return f"no trial is known: {reasons[0]}" if reasons else ""
    when = _format_time(max(record.started_at for record in records))
    if len(records) == total:
        return f"all {total} trials are known from {when}; --again measures them"
    return f"{len(records)} of {total} trials are known from {when}; {total - len(records)} to measure"


def _format_time(seconds: float) -> str:
    """Format a moment: the time of today, or with its date."""
    moment, today = time.localtime(seconds), time.localtime()
    form = "%H:%M" if moment[:3] == today[:3] else "%Y-%m-%d %H:%M"
    return time.strftime(form, moment)
