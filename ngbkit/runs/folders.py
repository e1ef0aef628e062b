"""The folders of runs, each with the run's metadata and its journal."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit import options
from ngbkit.errors import JournalError, NgbkitError, RunNotFoundError, find_nearest
from ngbkit.files import Store
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.trials import ANCHOR

if TYPE_CHECKING:
    import xarray as xr

FORMAT = 1


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
    """

    id: str
    created: float
    sweep: Grid
    statuses: Mapping[str, int]


def summaries() -> Iterator[Summary]:
    """Summarize every run of this user, the latest first; unreadable folders are skipped."""
    for folder in sorted(_list_folders(), reverse=True):
        try:
            metadata = _load_metadata(folder)
            sweep = _parse_sweep(metadata)
            with Journal(folder / "journal.sqlite", writable=False) as journal:
                by_trial = journal.statuses()
        except (NgbkitError, OSError, KeyError, ValueError):
            continue
        statuses = Counter(status for trial_id, status in by_trial.items() if not trial_id.startswith(ANCHOR))
        statuses["pending"] = len(sweep) - sum(statuses.values())
        yield Summary(id=folder.name, created=metadata["created"], sweep=sweep, statuses=+statuses)


def read_sweep(folder: Path) -> Grid:
    """Read the sweep of the run in a folder."""
    return _parse_sweep(_load_metadata(folder))


def load_dataset(folder: Path) -> xr.Dataset | xr.DataTree:
    """Load the dataset of the run in a folder, as far as it is measured."""
    return assemble_dataset(folder, read_sweep(folder))


def assemble_dataset(folder: Path, sweep: Grid) -> xr.Dataset | xr.DataTree:
    """Assemble the dataset of the run in a folder, whose sweep is `sweep`."""
    import ngbkit.figures.accessor  # noqa: F401  registers `ds.ngb`
    from ngbkit.dataset.assembly import assemble_rows

    with Journal(folder / "journal.sqlite", writable=False) as journal:
        return assemble_rows(
            sweep,
            journal.rows(),
            environments=journal.notes("environment"),
            facts=journal.notes("facts"),
            run_id=folder.name,
        )


def get_runs_dir() -> Path:
    """Return the folder that holds the folders of all runs."""
    return options.get_state_dir() / options.LAYOUT.runs


def _parse_sweep(metadata: Mapping[str, Any]) -> Grid:
    return Grid.from_json(metadata["sweep"], locate=Store(options.get_state_dir() / options.LAYOUT.artifacts).locate)


def _load_metadata(folder: Path) -> dict[str, Any]:
    metadata: dict[str, Any] = json.loads((folder / "run.json").read_text())
    if metadata["format"] != FORMAT:
        raise JournalError(
            f"run {folder.name} has format {metadata['format']}; expected {FORMAT}. Install a newer ngbkit."
        )
    return metadata


def _list_folders() -> list[Path]:
    folder = get_runs_dir()
    return [run for run in folder.iterdir() if (run / "run.json").is_file()] if folder.is_dir() else []
