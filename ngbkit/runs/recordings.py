"""Recordings of runs: they let a notebook be executed again without measuring, with the same results.

A recording is a copy of a run's folder (its metadata and its journal), named by the hash of the sweep. Two environment
variables control what happens when a sweep is started; `ngbkit publish` sets them for its kernels:

``NGBKIT_RECORDED``
    The folder of the recordings. Without it every sweep is measured and nothing is recorded.
``NGBKIT_MEASURE``
    ``missing`` (the default): a sweep without a recording is measured and recorded; ``never``: it is an error;
    ``always``: every sweep is measured and recorded anew.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ngbkit import validation
from ngbkit.errors import UsageError
from ngbkit.files import write_atomically
from ngbkit.sweep.grid import Grid

FOLDER, MEASURE = "NGBKIT_RECORDED", "NGBKIT_MEASURE"
Measure = Literal["missing", "never", "always"]
_FILES = ("journal.sqlite", "run.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recordings:
    """The recordings in a folder, one subfolder a sweep, and which sweeps are measured."""

    folder: Path
    measure: Measure = "missing"

    @classmethod
    def from_environment(cls) -> Recordings | None:
        """Return the recordings that the environment variables configure, or None."""
        folder = os.environ.get(FOLDER)
        if not folder:
            return None
        measure = validation.check(MEASURE, Measure, os.environ.get(MEASURE) or "missing")
        return cls(folder=Path(folder), measure=measure)

    def find(self, sweep: Grid, guide_key: str = "") -> Path | None:
        """Return the recording that replaces measuring a sweep, or None where the sweep is to be measured."""
        recording = self._path(sweep, guide_key)
        if self.measure != "always" and (recording / _FILES[-1]).is_file():
            return recording
        if self.measure == "never":
            names = ", ".join(workload.name for workload in sweep.workloads[:4])
            raise UsageError(
                f"this sweep of {names} has no recording in {self.folder}, and {MEASURE}=never forbids measuring it. "
                "`ngbkit publish --re-run` measures and records the sweeps of notebooks."
            )
        return None

    def save(self, sweep: Grid, guide_key: str, folder: Path) -> None:
        """Record the run in `folder`, replacing an earlier recording of the same sweep."""
        copy_run(folder, self._path(sweep, guide_key))

    def _path(self, sweep: Grid, guide_key: str) -> Path:
        # A run within a budget measures a part of the sweep, and must not replay as the full sweep.
        return self.folder / (f"{sweep.id}-{guide_key}" if guide_key else sweep.id)


def copy_run(source: Path, target: Path) -> None:
    """Copy a run's folder; the copy counts as a run once its last file exists."""
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in _FILES:
        with write_atomically(target / name) as temporary:
            shutil.copyfile(source / name, temporary)
