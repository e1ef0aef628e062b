"""The summary of a run: its sweep in short, its trials by status, its end, its context and its size."""

from __future__ import annotations

import json
import os
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.runs.folders import get_runs_dir, load_metadata, parse_sweep, read_sweep
from ngbkit.runs.run_context import RunContext

if TYPE_CHECKING:
    from ngbkit.sweep.grid import Grid
    from ngbkit.sweep.notes import ContentNote

RUNNING, INTERRUPTED = "running", "interrupted"
"""The states of a run whose end is not recorded: a process still drives it, or its process ended without a word."""

# The words for options of a sweep of which a change is displayed with the values alone.
_LISTS = ("compilers", "devices")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run in one line."""

    id: str
    created: float  # seconds since the epoch
    sweep_id: str  # the content hash of its sweep
    trials: int
    networks: Mapping[str, str]  # the content hash of each, by name
    request: Mapping[str, Any]  # the other options of its sweep, as plain JSON
    options: str  # those of them that are not defaults, as a shell takes them
    statuses: Mapping[str, int]  # the number of trials of each, ``pending`` included
    other_work_percent: Mapping[str, float]  # by device, of all cores when the run began, if that was much
    context: RunContext
    state: str  # "running", "finished", "stopped", "failed"; "interrupted" if its process ended before it
    error: str  # why it failed
    bytes: int  # of its folder
    # By the key of each network's facts and by device, its `digest` (`ngbkit.device.contents`), and the hash of the
    # `settings` of the device then.
    contents: Mapping[str, Mapping[str, ContentNote]]

    @property
    def sweep(self) -> Grid:
        """Its whole sweep, read from its folder."""
        return read_sweep(get_runs_dir() / self.id)

    @property
    def digests(self) -> dict[str, str]:
        """The content of each network by the key of its facts, whatever its device."""
        return {network: note["digest"] for network, notes in self.contents.items() for note in notes.values()}

    @property
    def is_resumable(self) -> bool:
        """True if trials, or further waves of them, are missing that no process measures."""
        is_short = "pending" in self.statuses or (self.state != "finished" and self.request.get("waves", 1) > 1)
        return self.state != RUNNING and is_short

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Summary:
        """Build a summary from the output of `to_json`."""
        return cls(**{**data, "context": RunContext.from_json(data["context"])})


def summarize(folder: Path) -> Summary:
    """Summarize the run in a folder; JournalError if a file is damaged, missing or of a newer ngbkit."""
    from ngbkit.hardware.conditions import BUSY_PERCENT
    from ngbkit.sweep.journal import Journal
    from ngbkit.sweep.trials import ANCHOR

    metadata = load_metadata(folder)
    sweep = parse_sweep(folder, metadata)
    with Journal(folder / "journal.sqlite", writable=False) as journal:
        by_trial, environments, endings = journal.statuses(), journal.notes("environment"), journal.notes("ending")
        contents = journal.notes("content")
    statuses = Counter(status for trial_id, status in by_trial.items() if not trial_id.startswith(ANCHOR))
    statuses["pending"] = len(sweep) - sum(statuses.values())
    shares = {label: device.get("conditions", {}).get("other_busy_percent") for label, device in environments.items()}
    ending = endings.get("run", {"state": RUNNING if statuses["pending"] else "finished", "error": ""})
    return Summary(
        id=folder.name,
        created=float(metadata["created"]),
        sweep_id=sweep.id,
        trials=len(sweep),
        networks={workload.name: workload.id for workload in sweep.workloads},
        request={name: value for name, value in metadata["sweep"].items() if name != "workloads"},
        options=shlex.join(sweep.to_words()),
        statuses=dict(+statuses),
        other_work_percent={label: share for label, share in shares.items() if (share or 0) >= BUSY_PERCENT},
        context=RunContext.load(folder),
        **ending,
        bytes=_measure_size(folder),
        contents=contents,
    )


def _measure_size(folder: Path) -> int:
    """Measure the files of a folder, of which SQLite removes some when a run ends."""
    size = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                size += entry.stat().st_size if entry.is_file() else 0
    return size


def list_changes(before: Summary, after: Summary) -> list[str]:
    """List the changes from one run to a later one, shortly: ``["model: 3 lines", "+ openvino", "batch 1 → 1,4"]``."""
    return [*_list_network_changes(before, after), *_list_option_changes(before.request, after.request)]


def _list_network_changes(before: Summary, after: Summary) -> Iterator[str]:
    changed = [name for name, network in after.networks.items() if before.networks.get(name, network) != network]
    if changed:
        old, new = Counter(before.context.code), Counter(after.context.code)
        count = max((old - new).total(), (new - old).total())
        lines = "1 line" if count == 1 else f"{count} lines"
        yield f"{', '.join(changed)}: {lines if count else 'other content'}"
    others = [name for name, network in after.networks.items() if before.networks.get(name) == network]
    changed_keys = [key for key, digest in after.digests.items() if before.digests.get(key, digest) != digest]
    imported = [name for name in others if name in {json.loads(key)[0] for key in changed_keys}]
    if imported:
        yield f"{', '.join(imported)}: a module that it imports"
    yield from _list_differences(list(before.networks), list(after.networks))


def _list_option_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in after:
        old, new = before.get(name), after[name]
        if old == new:
            continue
        if name in _LISTS:
            yield from _list_differences(old or (), new)
        elif name == "factors":
            levels = dict(old or {})
            yield from (
                f"{factor} {_format(levels.get(factor))} → {_format(values)}"
                for factor, values in {**dict.fromkeys(levels), **new}.items()
                if levels.get(factor) != values
            )
        elif isinstance(new, bool):
            yield f"{'+' if new else '-'} {name.replace('_', ' ')}"
        else:
            yield f"{'batch' if name == 'batch_sizes' else name.replace('_', ' ')} {_format(old)} → {_format(new)}"


def _list_differences(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    yield from (f"+ {name}" for name in after if name not in before)
    yield from (f"- {name}" for name in before if name not in after)


def _format(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "none" if value is None else str(value)
