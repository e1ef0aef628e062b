"""The folders of runs, each with the run's metadata and its journal."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from ngbkit import options, validation
from ngbkit.errors import JournalError, NgbkitError, RunNotFoundError, find_nearest
from ngbkit.files import Store
from ngbkit.hardware.conditions import BUSY_PERCENT
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.trials import ANCHOR
from ngbkit.validation import Label, Line, number
from ngbkit.workloads.base import hash_json

if TYPE_CHECKING:
    import xarray as xr

FORMAT = 1
_METADATA = "run.json"
_REMEDY = "Restore it from a copy; the journal beside it holds the measurements."
# The last second of the year 9999, the last that can be printed.
_LATEST = 253402300799


class _RunMetadata(TypedDict):
    format: int
    id: Label
    created: Annotated[float, number(0, _LATEST)]
    sweep: Mapping[str, Any]
    hash: Line


def find(run_id: str) -> Path:
    """Find the folder of a run by its id, or by a prefix of it that no other run shares.

    Raises
    ------
    RunNotFoundError
        No run has such an id, or several have.
    """
    run_ids = [folder.name for folder in _list_folders()]
    matches = [name for name in run_ids if name == run_id] or [name for name in run_ids if name.startswith(run_id)]
    if len(matches) == 1:
        return get_runs_dir() / matches[0]
    if matches:
        raise RunNotFoundError(f"{len(matches)} runs begin with {run_id!r}: {', '.join(matches)}. Give a longer id.")
    similar = find_nearest(run_id, run_ids)
    hint = f" Did you mean {similar[0]}?" if similar else " `ngbkit runs` lists all runs."
    raise RunNotFoundError(f"there is no run {run_id!r}.{hint}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run in one line.

    Parameters
    ----------
    id
        The run's id.
    created
        Seconds since the epoch.
    sweep
        What it measures.
    statuses
        Number of trials of each status, ``pending`` included.
    other_work_percent
        By device, how much of all cores other work used when the run began, if that was much.
    """

    id: str
    created: float
    sweep: Grid
    statuses: Mapping[str, int]
    other_work_percent: Mapping[str, float]


def _ignore(error: NgbkitError) -> None:
    del error


def summaries(report: Callable[[NgbkitError], None] = _ignore) -> Iterator[Summary]:
    """Summarize every run of this user, the latest first; `report` receives the error of each that cannot be read."""
    runs = []
    for folder in sorted(_list_folders(), reverse=True):
        try:
            runs.append((folder, load_metadata(folder)))
        except NgbkitError as error:
            report(error)
    # By the moment, and not by the id, whose time a clock may have set back.
    for folder, metadata in sorted(runs, key=lambda run: run[1]["created"], reverse=True):
        try:
            sweep = _parse_sweep(folder, metadata)
            with Journal(folder / "journal.sqlite", writable=False) as journal:
                by_trial, environments = journal.statuses(), journal.notes("environment")
        except NgbkitError as error:
            report(error)
            continue
        statuses = Counter(status for trial_id, status in by_trial.items() if not trial_id.startswith(ANCHOR))
        statuses["pending"] = len(sweep) - sum(statuses.values())
        shares = {
            label: device.get("conditions", {}).get("other_busy_percent") for label, device in environments.items()
        }
        yield Summary(
            id=folder.name,
            created=metadata["created"],
            sweep=sweep,
            statuses=+statuses,
            other_work_percent={label: share for label, share in shares.items() if (share or 0) >= BUSY_PERCENT},
        )


def read_sweep(folder: Path) -> Grid:
    """Read the sweep of the run in a folder."""
    return _parse_sweep(folder, load_metadata(folder))


def load_dataset(folder: Path) -> xr.Dataset | xr.DataTree:
    """Load the dataset of the run in a folder, as far as it is measured."""
    return assemble_dataset(folder, read_sweep(folder))


def assemble_dataset(folder: Path, sweep: Grid) -> xr.Dataset | xr.DataTree:
    """Assemble the dataset of the run in a folder, whose sweep is `sweep`."""
    from ngbkit.dataset.assembly import assemble_journal

    with Journal(folder / "journal.sqlite", writable=False) as journal:
        return assemble_journal(sweep, journal, run_id=folder.name)


def get_runs_dir() -> Path:
    """Return the folder that holds the folders of all runs."""
    return options.get_state_dir() / options.LAYOUT.runs


def build_metadata(run_id: str, sweep: Grid) -> dict[str, Any]:
    """Build the metadata of a new run, as plain JSON with its hash."""
    metadata = {"format": FORMAT, "id": run_id, "created": time.time(), "sweep": sweep.to_json()}
    return {**metadata, "hash": hash_json(metadata)}


def load_metadata(folder: Path) -> dict[str, Any]:
    """Load the metadata of the run in a folder.

    Raises
    ------
    JournalError
        The file is damaged or missing, or a newer ngbkit wrote it.
    """
    try:
        content: dict[str, Any] = json.loads((folder / _METADATA).read_text(encoding="utf-8"))
        metadata = validation.parse(_RunMetadata, content)
        is_intact = content.pop("hash") == hash_json(content)
    except PermissionError:
        raise JournalError(f"run {folder.name} is another user's, who can read it and give it to you.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise JournalError(f"the {_METADATA} of run {folder.name} cannot be read: {error}. {_REMEDY}") from None
    if metadata["format"] != FORMAT:
        raise JournalError(
            f"run {folder.name} has format {metadata['format']}; expected {FORMAT}. Install a newer ngbkit."
        )
    if not is_intact:
        raise JournalError(f"the {_METADATA} of run {folder.name} is not as it was written. {_REMEDY}")
    # As it was written, since texts of a sweep are part of its identity.
    return content


def _parse_sweep(folder: Path, metadata: Mapping[str, Any]) -> Grid:
    locate = Store(options.get_state_dir() / options.LAYOUT.artifacts).locate
    try:
        return Grid.from_json(metadata["sweep"], locate=locate)
    except NgbkitError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise JournalError(f"the sweep of run {folder.name} cannot be read: {error!r}. {_REMEDY}") from None


def _list_folders() -> list[Path]:
    folder = get_runs_dir()
    return [run for run in folder.iterdir() if _has_metadata(run)] if folder.is_dir() else []


def _has_metadata(folder: Path) -> bool:
    try:
        return (folder / _METADATA).is_file()
    except OSError:  # of another user: `load_metadata` explains it
        return True
