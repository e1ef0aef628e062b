"""Deletes runs: their folders, their journals on devices of this machine, and the artifacts that only they use."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngbkit import options
from ngbkit.cluster.keys import is_label
from ngbkit.device.plan import list_journals
from ngbkit.errors import FencedError, NgbkitError
from ngbkit.files import Store, explain_errors
from ngbkit.runs.folders import find, get_runs_dir, has_metadata, list_ids, load_metadata
from ngbkit.sweep.journal_file import take_fence


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """The ids of the runs that were deleted, and the content hashes of the artifacts that only they used."""

    runs: tuple[str, ...]
    artifacts: tuple[str, ...]


@explain_errors()
def delete(run_ids: Sequence[str]) -> Deletion:
    """Delete runs, each by its id or a prefix of it that no other run shares, with the artifacts that only they use.

    Journals on devices of other machines stay. RunNotFoundError, FencedError: no run has an id, or a process drives it
    still; then no run is deleted.
    """
    folders = list(dict.fromkeys(map(find, run_ids)))
    with ExitStack() as fences:
        for folder in folders:
            try:
                fences.enter_context(take_fence(folder / "journal.sqlite"))
            except FencedError:
                raise FencedError(f"run {folder.name} is measured now. Stop it, and delete it then.") from None
        sweeps = {folder: _read_sweep(folder) for folder in folders}
        digests = {digest for sweep in sweeps.values() for digest, _ in _iterate_artifacts(sweep)}
        if digests:
            digests -= list_artifacts(without=sweeps).keys()
        for folder, sweep in sweeps.items():
            _remove(folder, sweep)
        files = Store(options.get_state_dir() / options.LAYOUT.artifacts).list_files() if digests else {}
        artifacts = sorted(files.keys() & digests)
        for path in (path for digest in artifacts for path in files[digest]):
            path.unlink()
        return Deletion(runs=tuple(folder.name for folder in folders), artifacts=tuple(artifacts))


def list_artifacts(without: Collection[Path] = ()) -> dict[str, dict[str, str]]:
    """List the artifacts of all runs but those in some folders: by content hash, the name of its network by run."""
    artifacts: dict[str, dict[str, str]] = {}
    for folder in (get_runs_dir() / run_id for run_id in list_ids() if has_metadata(run_id)):
        for digest, network in _iterate_artifacts(_read_sweep(folder) if folder not in without else {}):
            artifacts.setdefault(digest, {})[folder.name] = network
    return artifacts


def _read_sweep(folder: Path) -> dict[str, Any]:
    """Read the sweep of a run as JSON; an empty one of a damaged run, which can be deleted too."""
    with suppress(NgbkitError):
        return dict(load_metadata(folder)["sweep"])
    return {}


def _iterate_artifacts(sweep: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the content hash of each artifact, and the name of its network."""
    for workload in sweep.get("workloads", ()):
        yield from ((digest, workload["name"]) for digest in workload["artifacts"])


def _remove(folder: Path, sweep: dict[str, Any]) -> None:
    """Remove the files of a run, first that without which it is none."""
    (folder / "run.json").unlink(missing_ok=True)
    for device in filter(is_label, sweep.get("devices", ())):
        for journal in list_journals(options.get_state_dir(), device, folder.name):
            for suffix in ("", "-wal", "-shm", ".lock"):
                Path(f"{journal}{suffix}").unlink(missing_ok=True)
    shutil.rmtree(folder)
