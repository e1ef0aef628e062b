"""The folders of runs, each with the run's metadata and its journal."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from ngbkit import options, validation
from ngbkit.errors import JournalError, NgbkitError, RunNotFoundError, find_nearest
from ngbkit.files import Store
from ngbkit.validation import Line, number, text

if TYPE_CHECKING:
    import xarray as xr

    from ngbkit.sweep.grid import Grid

FORMAT = 1
INDEX = "index.sqlite"
"""The file beside the folders of runs with their summaries."""
_METADATA = "run.json"
_REMEDY = "Restore it from a copy; the journal beside it holds the measurements."
# The last second of the year 9999, the last that can be printed.
_LATEST = 253402300799


class _RunMetadata(TypedDict):
    format: int
    id: Annotated[str, text(r"\w[\w-]*", "letters, digits, '_' and '-'")]  # not the name of the index
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
    run_ids = list_ids()
    similar = [name for name in run_ids if name.startswith(run_id)]
    matches = [name for name in similar if name == run_id] or [name for name in similar if has_metadata(name)]
    if len(matches) == 1:
        return get_runs_dir() / matches[0]
    if matches:
        raise RunNotFoundError(f"{len(matches)} runs begin with {run_id!r}: {', '.join(matches)}. Give a longer id.")
    nearest = find_nearest(run_id, run_ids)
    hint = f" Did you mean {nearest[0]}?" if nearest else " `ngbkit runs` lists all runs."
    raise RunNotFoundError(f"there is no run {run_id!r}.{hint}" if run_id else "there is no run yet: start one.")


def read_sweep(folder: Path) -> Grid:
    """Read the sweep of the run in a folder."""
    return parse_sweep(folder, load_metadata(folder))


def load_dataset(folder: Path) -> xr.Dataset | xr.DataTree:
    """Load the dataset of the run in a folder, as far as it is measured."""
    return assemble_dataset(folder, read_sweep(folder))


def assemble_dataset(folder: Path, sweep: Grid) -> xr.Dataset | xr.DataTree:
    """Assemble the dataset of the run in a folder, whose sweep is `sweep`."""
    from ngbkit.dataset.assembly import assemble_journal
    from ngbkit.sweep.journal import Journal

    with Journal(folder / "journal.sqlite", writable=False) as journal:
        return assemble_journal(sweep, journal, run_id=folder.name)


def get_runs_dir() -> Path:
    """Return the folder that holds the folders of all runs."""
    return options.get_state_dir() / options.LAYOUT.runs


def build_metadata(run_id: str, sweep: Grid) -> dict[str, Any]:
    """Build the metadata of a new run, as plain JSON with its hash."""
    from ngbkit.workloads.base import hash_json

    metadata = {"format": FORMAT, "id": run_id, "created": time.time(), "sweep": sweep.to_json()}
    return {**metadata, "hash": hash_json(metadata)}


def load_metadata(folder: Path) -> dict[str, Any]:
    """Load the metadata of a run's folder; JournalError if it is damaged, missing or of a newer ngbkit."""
    from ngbkit.workloads.base import hash_json

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


def parse_sweep(folder: Path, metadata: Mapping[str, Any]) -> Grid:
    """Parse the sweep of the run in a folder from its metadata."""
    from ngbkit.sweep.grid import Grid

    locate = Store(options.get_state_dir() / options.LAYOUT.artifacts).locate
    try:
        return Grid.from_json(metadata["sweep"], locate=locate)
    except NgbkitError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise JournalError(f"the sweep of run {folder.name} cannot be read: {error!r}. {_REMEDY}") from None


def list_ids() -> list[str]:
    """List the ids of all runs, the latest first, without reading one."""
    try:
        names = os.listdir(get_runs_dir())  # noqa: PTH208  ten thousand names need no paths
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted((name for name in names if ".sqlite" not in name), reverse=True)


def has_metadata(run_id: str) -> bool:
    """Return whether the folder with that name is a run's: one is incomplete until its metadata are written."""
    try:
        return (get_runs_dir() / run_id / _METADATA).is_file()
    except OSError:  # of another user: `load_metadata` explains it
        return True
