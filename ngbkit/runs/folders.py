"""The folders that runs are kept in: what each was asked for, and what its journal holds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit import options
from ngbkit.errors import JournalError, NgbkitError, RunNotFoundError, nearest
from ngbkit.files import Store
from ngbkit.sweep.grid import Sweep
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.trials import ANCHOR

if TYPE_CHECKING:
    import xarray as xr

FORMAT = 1


def find(run_id: str) -> Path:
    """The folder of a run.

    Raises
    ------
    RunNotFoundError
        No run, or more than one, has an id that begins so.
    """
    known = [folder.name for folder in _folders()]
    found = [name for name in known if name == run_id] or [name for name in known if name.startswith(run_id)]
    if len(found) == 1:
        return runs_folder() / found[0]
    if found:
        raise RunNotFoundError(f"{len(found)} runs begin with {run_id!r}: {', '.join(found)}. Give more of the id.")
    near = nearest(run_id, known)
    hint = f" Did you mean {near[0]}?" if near else " `ngbkit runs` lists them all."
    raise RunNotFoundError(f"there is no run {run_id!r}.{hint}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run in a line.

    Parameters
    ----------
    id
        Its id.
    created
        Seconds since the epoch.
    sweep
        What it measures.
    statuses
        How many of its trials have each status, ``pending`` among them.
    """

    id: str
    created: float
    sweep: Sweep
    statuses: Mapping[str, int]


def summaries() -> Iterator[Summary]:
    """Every run of this user, the latest first. A folder that does not read as one is passed over."""
    for folder in sorted(_folders(), reverse=True):
        try:
            about = _about(folder)
            with Journal(folder / "journal.sqlite", writable=False) as journal:
                found = journal.statuses().items()
            statuses = Counter(status for trial_id, status in found if not trial_id.startswith(ANCHOR))
            sweep = read_sweep(folder)
        except (NgbkitError, OSError, KeyError, ValueError):
            continue
        statuses["pending"] = len(sweep) - sum(statuses.values())
        yield Summary(id=folder.name, created=about["created"], sweep=sweep, statuses=+statuses)


def read_sweep(folder: Path) -> Sweep:
    """The sweep of the run in that folder."""
    return Sweep.from_json(_about(folder)["sweep"], locate=Store(options.state_dir() / "artifacts").path)


def load_dataset(folder: Path) -> xr.Dataset | xr.DataTree:
    """The dataset of the run in that folder, as far as it has come."""
    import ngbkit.figures.accessor  # noqa: F401  gives the dataset its `ds.ngb`
    from ngbkit.dataset.assembly import assemble_rows

    with Journal(folder / "journal.sqlite", writable=False) as journal:
        return assemble_rows(
            read_sweep(folder),
            journal.rows(),
            environments=journal.notes("environment"),
            facts=journal.notes("facts"),
            run_id=folder.name,
        )


def _about(folder: Path) -> dict[str, Any]:
    about: dict[str, Any] = json.loads((folder / "run.json").read_text())
    if about["format"] != FORMAT:
        raise JournalError(
            f"run {folder.name} has format {about['format']}; this ngbkit reads {FORMAT}. Install a newer ngbkit."
        )
    return about


def runs_folder() -> Path:
    return options.state_dir() / "runs"


def _folders() -> list[Path]:
    folder = runs_folder()
    return [run for run in folder.iterdir() if (run / "run.json").is_file()] if folder.is_dir() else []
