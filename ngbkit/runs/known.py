"""Known trials: what earlier runs of a device measured of a sweep, so that it need not be measured again.

A trial is known by its content: the network (`ngbkit.device.contents`), compiler with its options, batch
size, device, and how it is measured. A ratio needs its baseline in the same rounds, so a column is taken over together
with the rounds of the baseline and the anchor beside it; and where other columns of its group are to be measured, these
two are measured once more beside them, and have the rounds of both.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from ngbkit.cluster import devices
from ngbkit.errors import NgbkitError
from ngbkit.hardware.environment import find_changes
from ngbkit.runs import folders
from ngbkit.runs.run_index import summaries
from ngbkit.runs.selfcheck.store import load
from ngbkit.runs.summary import Summary
from ngbkit.sweep.column import BASELINE
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.joining import join
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.notes import ContentNote
from ngbkit.sweep.option import options_of
from ngbkit.sweep.records import Measurement, Record
from ngbkit.sweep.settling import count_waves, is_conclusive
from ngbkit.sweep.trials import ANCHOR, Bundle, Group, Trial, facts_key
from ngbkit.workloads.base import hash_json

# Earlier runs are looked for among so many of the latest, and so many of them are read for one network.
_LATEST, _MOST_RUNS = 300, 12
# Beyond this age the host of a virtual machine, and much else that no description has, may have changed.
_MOST_DAYS = 7.0
# Where the runs of a device differed by more than this (standard deviation), a day is too old.
_UNSTEADY_SD, _UNSTEADY_DAYS = 0.1, 1.0
# The most changes of a device that are named.
_MOST_CHANGES = 3
# The clock of a device may have been ahead by this.
_SKEW_S = 60.0
# A later self-check disagrees where its deviation is more than so many times that of the earlier one.
_DISAGREEING = 2.0
# The failures that another attempt would repeat.
_LASTING = ("failed", "unsupported", "not-equivalent")
# The options of a sweep that each trial has itself, and those that change no result; `repeats` and `precision` may be
# better than asked for.
_NOT_COMPARED = frozenset(
    {
        *("workloads", "compilers", "batch_sizes", "factors", "inputs", "batch_axis", "devices", "timeout_s"),
        *("precisions", "calibrate", "evaluate", "reference", "repeats", "precision", "together", "profile", "waves"),
    }
)
# The rounds of a run's first plan begin at 0, and those of its later plans below 1,500,000,000; those of other runs
# begin beyond it, and 32 bits hold them all.
_FIRST_PLAN, _SHIFT, _SHIFTS = 500_000_000, 1_500_000_000, 600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTrials:
    """The known trials of a sweep on one device."""

    records: Mapping[str, Record] = field(default_factory=dict)  # by the id of the trial in the new sweep
    facts: Mapping[str, Any] = field(default_factory=dict)  # of their networks
    environment: Mapping[str, Any] = field(default_factory=dict)  # of the device when they were measured
    text: str = ""  # a sentence on what is known and what is not


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRun:
    """The records that an earlier run has of the networks of a new sweep, on one device."""

    run_id: str
    sweep: Grid
    environment: Mapping[str, Any]  # of the device when it measured, which its dataset has
    description: Mapping[str, Any]  # of the device before that
    records: Mapping[str, Record]  # by the ids of the new sweep
    facts: Mapping[str, Any]  # by the networks of the new sweep
    names: Mapping[str, str]  # in the earlier sweep, by those in the new one
    inconclusive: int = 0  # the measurements that are left out: other work slowed them, or their run was stopped

    @classmethod
    def open(cls, sweep: Grid, device: str, run_id: str, networks: Mapping[str, str]) -> KnownRun:
        """Open a run that measured networks: their keys in it, by those in the new sweep; NgbkitError if damaged."""
        folder = folders.get_runs_dir() / run_id
        earlier = folders.read_sweep(folder)
        workloads = {workload.name: workload for workload in earlier.workloads}
        keys = {key: network for key, network in networks.items() if _parse_name(network) in workloads}
        names = {_parse_name(key): _parse_name(network) for key, network in keys.items()}
        trials = {
            replace(trial, workload=name, workload_id=workloads[name].id).id: trial
            for group in sweep.groups(device)
            if (network := keys.get(facts_key(group.workload.name, group.factors)))
            for name in [_parse_name(network)]
            for trial in (*group.trials, *([group.anchor] if group.anchor is not None else []))
        }
        with Journal(folder / "journal.sqlite", writable=False) as journal:
            # One that failed as another attempt would is certain; an index may be reached later.
            present = [
                record
                for record in journal.records(trials)
                if isinstance(record, Measurement) or (record.status in _LASTING and record.stage != "install")
            ]
            environment = journal.notes("environment").get(device, {})
            description = journal.notes("description").get(device, {})
            facts = journal.notes("facts")
        return cls(
            run_id=run_id,
            sweep=earlier,
            environment=environment,
            description=description,
            records={
                trials[record.trial_id].id: _adapt(record, trials[record.trial_id], run_id)
                for record in present
                if _is_usable(record, sweep)
            },
            inconclusive=sum(
                not _is_usable(record, sweep) and not record.trial_id.startswith(ANCHOR) for record in present
            ),
            facts={key: facts[network] for key, network in keys.items() if network in facts},
            names=names,
        )

    def find_change(self, description: Mapping[str, Any]) -> str:
        """Find why the run no longer holds on the device that has this description now; empty if it does."""
        if not (self.environment and self.description and description):
            return f"run {self.run_id}, or this one, has no description of the device"
        # An environment of a release was perhaps installed after the description.
        before = {**self.description, "releases": self.environment.get("releases", {}), "change": ""}
        if changes := find_changes(before, description):
            return "; ".join(changes[:_MOST_CHANGES])
        start, end = (self.environment.get(name) for name in ("conditions", "conditions_after"))
        meanwhile = find_changes({"conditions": start}, {"conditions": end}) if start and end else []
        if change := self.description.get("change") or next(iter(meanwhile), ""):
            return f"the device changed while run {self.run_id} measured: {change}"
        history = (self.environment.get("history") or {}).get("deviations") or {}
        is_unsteady = max(history.values(), default=0.0) > _UNSTEADY_SD
        most = _UNSTEADY_DAYS if is_unsteady else _MOST_DAYS
        # The clock of the device alone, which may be wrong, dated the records.
        now = description.get("clock") or time.time()
        age_s = now - max((record.started_at for record in self.records.values()), default=0.0)
        if self.records and age_s > most * 86400:
            reason = ", and the history of the device shows that it changes" if is_unsteady else ""
            return f"run {self.run_id} is more than {most:g} days old{reason}"
        if self.records and age_s < -_SKEW_S:
            return f"run {self.run_id} is dated in the future: the clock of the device was wrong"
        return self._find_disagreement()

    def _find_disagreement(self) -> str:
        """Find a later self-check of this machine that disagrees with that of the run."""
        before = (self.environment.get("selfcheck") or {}).get("process_sd")
        check = load(self.sweep.devices[0]) if len(self.sweep.devices) == 1 else None
        after = (check or {}).get("process_sd")
        if before and after and not before / _DISAGREEING <= after <= before * _DISAGREEING:
            return (
                f"a self-check after run {self.run_id} disagrees with that before it ({before:.2%}, then {after:.2%})"
            )
        return ""

    def find_difference(self, sweep: Grid) -> str:
        """Find how the run measured otherwise than the new sweep asks; empty if it measured so, or more."""
        if _takes_turns(self.sweep) != _takes_turns(sweep):
            manner = "in turns" if _takes_turns(self.sweep) else "one after the other"
            return f"run {self.run_id} measured its networks {manner}"
        names = [name for name in options_of(Grid) if name not in _NOT_COMPARED]
        is_alike = all(getattr(self.sweep, name) == getattr(sweep, name) for name in names)
        is_alike &= self.sweep.profile >= sweep.profile and self.sweep.waves >= sweep.waves
        if sweep.precision is not None:
            is_alike &= self.sweep.precision is not None and self.sweep.precision <= sweep.precision
        else:
            is_alike &= self.sweep.repeats is not None and self.sweep.repeats >= (sweep.repeats or 0)
        return "" if is_alike else f"run {self.run_id} measured with other options"

    def has_same_networks(self, sweep: Grid) -> bool:
        """Return whether the run had the networks of the new sweep with their factors, its compilers, and no others."""
        workloads = {workload.name: workload for workload in self.sweep.workloads}
        return (
            {*self.names} == {workload.name for workload in sweep.workloads}
            and len(workloads) == len(sweep.workloads)
            and {*self.sweep.compilers} == {*sweep.compilers}
            and all(workloads[self.names[each.name]].factors == each.factors for each in sweep.workloads)
        )


class EarlierRuns:
    """The earlier measurements of the networks of a run."""

    def __init__(self, run_id: str, sweep: Grid) -> None:
        self._run_id, self._sweep = run_id, sweep
        configured = devices.load()
        # An engine of the user's own cluster has no entry.
        self._settings = {label: hash_json(repr(configured.get(label))) for label in sweep.devices}

    def describe_content(self, device: str, digest: str) -> ContentNote:
        """Describe a network that the run measures on a device, for its journal."""
        return {"digest": digest, "settings": self._settings[device]}

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
        text = _describe([records[name] for name in total if name in records], len(total), reasons)
        if not records:
            return KnownTrials(text=text)
        facts = {key: value for source in reversed(sources) for key, value in source.facts.items()}
        return KnownTrials(records=records, facts=facts, environment=sources[0].environment, text=text)

    def _open_sources(
        self,
        device: str,
        description: Mapping[str, Any],
        contents: Mapping[str, tuple[str, str]],
        reasons: list[str],
    ) -> list[KnownRun]:
        """Open the runs that measured any of the networks and are still valid, the latest first."""
        sources: list[KnownRun] = []
        for summary, networks in self._list_runs(device, contents):
            if any(
                summary.contents[network][device]["settings"] != self._settings[device] for network in networks.values()
            ):
                reasons.append(f"the entry of {device} in the devices file has changed")
                continue
            try:
                source = KnownRun.open(self._sweep, device, summary.id, networks)
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

    def _list_runs(
        self, device: str, contents: Mapping[str, tuple[str, str]]
    ) -> Iterator[tuple[Summary, dict[str, str]]]:
        """Yield the latest runs that measured any of the networks: by its key here, the key of each in that run."""
        counts: Counter[str] = Counter()
        for summary in islice(summaries(), _LATEST):
            measured = {notes[device]["digest"]: key for key, notes in summary.contents.items() if device in notes}
            networks = {
                key: measured[digest]
                for key, (digest, _) in contents.items()
                if digest in measured and counts[digest] < _MOST_RUNS
            }
            if networks and summary.id != self._run_id:
                counts.update({contents[key][0] for key in networks})
                yield summary, networks


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
    complete = [
        source for source in sources if all(isinstance(source.records.get(name), Measurement) for name in references)
    ]
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
    moment, today = time.localtime(max(record.started_at for record in records)), time.localtime()
    when = time.strftime("%H:%M" if moment[:3] == today[:3] else "%Y-%m-%d %H:%M", moment)
    if len(records) == total:
        return f"all {total} trials are known from {when}; --again measures them"
    return f"{len(records)} of {total} trials are known from {when}; {total - len(records)} to measure"


def _takes_turns(sweep: Grid) -> bool:
    return sweep.together and len(sweep.workloads) > 1


def _is_usable(record: Record, sweep: Grid) -> bool:
    """Return whether a measurement is conclusive, complete and of checked calls; a failure is what it is."""
    if not isinstance(record, Measurement):
        return True
    is_complete = not record.stopped and count_waves(record.rounds) >= sweep.waves
    return is_complete and is_conclusive(record) and bool(record.contract.inputs)


def _adapt(record: Record, trial: Trial, run_id: str) -> Record:
    """Give a record the id of the new trial, its origin, and rounds that no other run has."""
    origin = record.origin or run_id
    if not isinstance(record, Measurement):
        return replace(record, trial_id=trial.id, origin=origin)
    digest = hashlib.blake2b(run_id.encode(), digest_size=8).digest()
    shift = _SHIFT + int.from_bytes(digest, "big") % _SHIFTS
    rounds = tuple(number + shift if number < _FIRST_PLAN else number for number in record.rounds)
    return replace(record, trial_id=trial.id, origin=origin, rounds=rounds)


def _parse_name(key: str) -> str:
    """Parse the name of a network from the key of its facts."""
    return str(json.loads(key)[0])
