"""Recordings of runs: they let a notebook be executed again without measuring, with the same results.

A recording is a copy of a run's folder (its metadata, its journal and its cell), named by the hash of the sweep. Three
environment variables control what happens when a sweep is started; `ngbkit publish` sets them for its kernels:

``NGBKIT_RECORDED``
    The folder of the recordings; sweeps that are measured are recorded there. Without it the folder is
    ``data/recorded`` beside the notebook, nothing is recorded, and recordings are replayed in a published folder
    (``ngbkit-site.json`` lies beside it) or where measuring is forbidden.
``NGBKIT_MEASURE``
    ``missing`` (the default): a sweep without a recording is measured; ``never``: it is an error; ``always``: every
    sweep is measured anew. Where it is not set, ``--again`` measures a recorded sweep.
``NGBKIT_EARLIER_RUNS``
    A JSON file of runs on this machine, each an `EarlierRun` by the name of its recording: a sweep without a recording
    adopts its run before it is measured or refused.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypedDict

from ngbkit import options, validation
from ngbkit.errors import UsageError
from ngbkit.files import write_atomically
from ngbkit.runs.folders import load_metadata, parse_sweep
from ngbkit.runs.run_context import RunContext
from ngbkit.sweep.grid import Grid

FOLDER, MEASURE, EARLIER = "NGBKIT_RECORDED", "NGBKIT_MEASURE", "NGBKIT_EARLIER_RUNS"
MANIFEST = "ngbkit-site.json"
"""The file that marks a published folder; the notebooks are in a folder beside it."""
BESIDE = Path("data", "recorded")
"""The recordings of a notebook, from its folder."""
AUDIT = "ngbkit.recording"
"""The audit event (`sys.addaudithook`) of a recording that is replayed or saved, with its folder."""
Measure = Literal["missing", "never", "always"]
_FILES = ("journal.sqlite", "run.json")


class EarlierRun(TypedDict):
    """A finished run of this machine, which may become a recording."""

    folder: str
    digests: Mapping[str, str]  # as `ngbkit.runs.summary.Summary.digests`


@dataclass(frozen=True, slots=True, kw_only=True)
class Recordings:
    """The recordings in a folder, one subfolder a sweep, and which sweeps are measured."""

    folder: Path
    measure: Measure = "missing"
    records: bool = True  # whether measured sweeps are recorded
    is_default: bool = False  # nobody set how sweeps are measured: --again is heeded, and runs say so
    earlier: Mapping[str, EarlierRun] = field(default_factory=dict)

    @classmethod
    def from_environment(cls, notebook: str = "") -> Recordings | None:
        """Return the recordings that environment variables, or the place of the notebook, configure; or None."""
        folder, text = os.environ.get(FOLDER), os.environ.get(MEASURE)
        measure = validation.check(MEASURE, Measure, text or "missing")
        if folder:
            file = os.environ.get(EARLIER)
            earlier = json.loads(Path(file).read_text(encoding="utf-8")) if file else {}
            return cls(folder=Path(folder), measure=measure, is_default=not text, earlier=earlier)
        # A script, or a notebook of which the front end says nothing, has the recordings of the working folder.
        is_located = notebook.endswith(".ipynb") and Path(notebook).is_absolute()
        place = Path(notebook).parent if is_located else Path()
        # Relative, since the working folder may have been removed.
        is_published = (place / ".." / MANIFEST).is_file() and (place / BESIDE).is_dir()
        if measure == "never" or (is_published and measure == "missing"):
            return cls(folder=place / BESIDE, measure=measure, records=False, is_default=not text)
        return None

    def find(self, sweep: Grid, guide_key: str = "", *, again: bool = False) -> Path | None:
        """Return the recording that replaces measuring a sweep, or None where the sweep is to be measured."""
        recording = self._path(sweep, guide_key)
        is_replayed = self.measure != "always" and not (again and self.is_default)
        if is_replayed and (is_complete(recording) or self._adopt(recording)):
            _check(recording, sweep, is_partial=bool(guide_key))
            sys.audit(AUDIT, str(recording))
            return recording
        if self.measure == "never":
            names = ", ".join(workload.name for workload in sweep.workloads[:4])
            remedy = (
                "`ngbkit publish --measure missing` measures and records the sweeps of notebooks that have none."
                if self.records
                else f"Run it without {MEASURE} to measure it here."
            )
            raise UsageError(
                f"this sweep of {names} has no recording in {self.folder}, and {MEASURE}=never forbids measuring it. "
                f"{remedy}"
            )
        return None

    def describe(self, recording: Path, device: str) -> str:
        """Describe a replay in a sentence: the machine and the day of its measurements."""
        from ngbkit.sweep.journal import Journal  # NumPy is not imported with the extension

        with Journal(recording / _FILES[0], writable=False) as journal:
            environment = journal.notes("environment").get(device, {})
        chip = f" on {environment['chip']}" if environment.get("chip") else ""
        day = time.strftime("%Y-%m-%d", time.localtime(load_metadata(recording)["created"]))
        remedy = "; --again measures here" if self.is_default else f", and {MEASURE}={self.measure} forbids measuring"
        return f"replayed from {_shorten(self.folder)}: measured{chip}, {day}{remedy}"

    def describe_lack(self, sweep: Grid, guide_key: str = "") -> str:
        """Describe why a sweep is measured although there are recordings."""
        if is_complete(self._path(sweep, guide_key)):
            return f"measured here again; without --again it is replayed from {_shorten(self.folder)}"
        return f"{_shorten(self.folder)} has no recording of this sweep: it is measured here"

    def save(self, sweep: Grid, guide_key: str, folder: Path) -> None:
        """Record the run in `folder`, replacing an earlier recording of the same sweep."""
        copy_run(folder, self._path(sweep, guide_key))
        sys.audit(AUDIT, str(self._path(sweep, guide_key)))

    def _adopt(self, recording: Path) -> bool:
        """Copy the earlier run of a sweep to its recording; False if there is none, or its networks have changed."""
        run = self.earlier.get(recording.name)
        if run is None or list_changed(run["digests"]):
            return False
        copy_run(Path(run["folder"]), recording)
        return True

    def _path(self, sweep: Grid, guide_key: str) -> Path:
        return self.folder / build_name(sweep.id, guide_key)


def build_name(sweep_id: str, guide_key: str = "") -> str:
    """Build the name of a recording: a run within a budget measures a part of the sweep, and has another name."""
    return f"{sweep_id}-{guide_key}" if guide_key else sweep_id


def is_complete(recording: Path) -> bool:
    """Return whether a folder is that of a recorded run."""
    return (recording / _FILES[-1]).is_file()


def list_changed(digests: Mapping[str, str]) -> list[str]:
    """List the networks of a run that were built from files which have changed since, by its digests."""
    from ngbkit.device import contents  # NumPy is not imported with the extension

    state_dir = options.get_state_dir()
    return sorted({json.loads(key)[0] for key, digest in digests.items() if contents.find_change(state_dir, digest)})


def copy_run(source: Path, target: Path) -> None:
    """Copy a run's folder, with the name of its notebook for its path; the copy is a run once its last file exists."""
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    context = RunContext.load(source)
    if context.cell:  # of a notebook, by which a later publication knows it; others, and notes, remain private
        replace(context, notebook=Path(context.notebook).name, note="").save(target)
    for name in _FILES:
        with write_atomically(target / name) as temporary:
            shutil.copyfile(source / name, temporary)


def _check(recording: Path, sweep: Grid, *, is_partial: bool) -> None:
    """Refuse by UsageError a damaged recording, another sweep's, and one without trials that no budget left out."""
    from ngbkit.sweep.journal import Journal  # NumPy is not imported with the extension

    is_other = parse_sweep(recording, load_metadata(recording)).id != sweep.id
    with Journal(recording / _FILES[0], writable=False) as journal:
        missing = {trial.id for trial in sweep.trials()} - {record.trial_id for record in journal.records()}
        is_damaged = journal.salvaged is not None
    if is_other or is_damaged or (missing and not is_partial):
        count = f"{len(missing)} of {len(sweep)} trials are missing or damaged"
        fault = "it is of another sweep" if is_other else count
        raise UsageError(f"the recording {recording} is not as it was measured: {fault}. Restore it, or delete it.")


def _shorten(folder: Path) -> str:
    """Shorten the usual folder to the words that documents have for it."""
    return str(BESIDE) if folder.parts[-2:] == BESIDE.parts else str(folder)
