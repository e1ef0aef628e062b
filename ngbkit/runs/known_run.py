"""An earlier run as a source of known trials: whether it still holds, and its records under the ids of a new sweep."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ngbkit import options
from ngbkit.hardware.environment import find_changes
from ngbkit.runs import folders
from ngbkit.runs.content_index import MeasuredContent
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.option import options_of
from ngbkit.sweep.records import Measurement, Record
from ngbkit.sweep.settling import is_conclusive
from ngbkit.sweep.trials import ANCHOR, Trial, facts_key
from ngbkit.user_text import parse_json

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
        *("precisions", "calibrate", "evaluate", "reference", "repeats", "precision", "together", "profile"),
    }
)
# The rounds of a run's first plan begin at 0, and those of its later plans below 1,500,000,000; those of other runs
# begin beyond it, and 32 bits hold them all.
_FIRST_PLAN, _SHIFT, _SHIFTS = 500_000_000, 1_500_000_000, 600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRun:
    """The records that an earlier run has of the networks of a new sweep, on one device."""

    run_id: str
    sweep: Grid
    # The environment of the device when it measured, which its dataset has, and the description before that.
    environment: Mapping[str, Any]
    description: Mapping[str, Any]
    # By the ids and the networks of the new sweep.
    records: Mapping[str, Record]
    facts: Mapping[str, Any]
    # The names in the earlier sweep by those in the new one.
    names: Mapping[str, str]
    # The measurements that are left out: other work slowed too many of their rounds, or their run was stopped.
    inconclusive: int = 0

    @classmethod
    def open(cls, sweep: Grid, device: str, entries: Mapping[str, MeasuredContent]) -> KnownRun:
        """Open the run that measured networks of these contents, by the keys of their facts; NgbkitError if damaged."""
        run_id = next(iter(entries.values())).run_id
        folder = folders.get_runs_dir() / run_id
        earlier = folders.read_sweep(folder)
        workloads = {workload.name: workload for workload in earlier.workloads}
        keys = {key: entry.network for key, entry in entries.items() if _parse_name(entry.network) in workloads}
        names = {_parse_name(key): _parse_name(network) for key, network in keys.items()}
        trials = {
            replace(trial, workload=name, workload_id=workloads[name].id).id: trial
            for group in sweep.groups(device)
            if (network := keys.get(facts_key(group.workload.name, group.factors)))
            for name in [_parse_name(network)]
            for trial in (*group.trials, *([group.anchor] if group.anchor is not None else []))
        }
        with Journal(folder / "journal.sqlite", writable=False) as journal:
            present = [record for record in journal.records(trials) if _is_certain(record)]
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
                if _is_usable(record)
            },
            inconclusive=sum(not _is_usable(record) and not record.trial_id.startswith(ANCHOR) for record in present),
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
        if change := self.description.get("change") or self._find_change_meanwhile():
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

    def _find_change_meanwhile(self) -> str:
        """Find how the conditions changed between the start and the end of the run's last plan."""
        before, after = (self.environment.get(name) for name in ("conditions", "conditions_after"))
        changes = find_changes({"conditions": before}, {"conditions": after}) if before and after else []
        return next(iter(changes), "")

    def _find_disagreement(self) -> str:
        """Find a later self-check of this machine that disagrees with that of the run."""
        before = (self.environment.get("selfcheck") or {}).get("process_sd")
        label = self.sweep.devices[0] if len(self.sweep.devices) == 1 else ""
        path: Path = options.LAYOUT.locate_selfcheck(options.get_state_dir(), label)
        try:
            after = parse_json(path.read_text()).get("process_sd") if label else None
        except (OSError, ValueError, AttributeError):
            return ""
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
        is_alike &= self.sweep.profile >= sweep.profile
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

    def measured(self, trial_ids: Sequence[str]) -> bool:
        """Return whether the run has a measurement of each of these."""
        return all(isinstance(self.records.get(trial_id), Measurement) for trial_id in trial_ids)


def _takes_turns(sweep: Grid) -> bool:
    return sweep.together and len(sweep.workloads) > 1


def _is_certain(record: Record) -> bool:
    """Return whether a trial was measured, or failed as another attempt would; an index may be reached later."""
    return isinstance(record, Measurement) or (record.status in _LASTING and record.stage != "install")


def _is_usable(record: Record) -> bool:
    """Return whether a measurement is conclusive, complete and of checked calls; a failure is what it is."""
    if not isinstance(record, Measurement):
        return True
    return is_conclusive(record) and not record.stopped and bool(record.contract.inputs)


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
