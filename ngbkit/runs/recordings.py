"""Runs that are kept beside notebooks: whoever executes these again gets the same measurements without measuring.

A recording is what a run's folder holds, what was asked for and its journal, under the hash of its sweep. Two
environment variables say what becomes of a sweep that is started; `ngbkit publish` sets them for its kernels:

``NGBKIT_RECORDED``
    The folder of recordings. Without it there are none, and everything is measured.
``NGBKIT_MEASURE``
    ``missing`` (the default): what has no recording is measured, and recorded; ``never``: that is an error; ``always``:
    everything is measured, and recorded anew.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from ngbkit.errors import UsageError
from ngbkit.files import replacing
from ngbkit.sweep.grid import Sweep

if TYPE_CHECKING:
    import xarray as xr

    from ngbkit.runs.run import Guide, Run

FOLDER, MEASURE = "NGBKIT_RECORDED", "NGBKIT_MEASURE"
Measure = Literal["missing", "never", "always"]
_FILES = ("journal.sqlite", "run.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recordings:
    """The recordings of this process.

    Parameters
    ----------
    folder
        One folder a sweep, by its hash.
    measure
        What is measured.
    """

    folder: Path
    measure: Measure = "missing"

    def find(self, sweep: Sweep, guide: Guide | None = None) -> Path | None:
        """The recording of a sweep that is to be taken in the place of measuring it.

        Raises
        ------
        UsageError
            There is none, and nothing may be measured.
        """
        place = self._place(sweep, guide)
        if self.measure != "always" and (place / _FILES[-1]).is_file():
            return place
        if self.measure == "never":
            names = ", ".join(workload.name for workload in sweep.workloads[:4])
            raise UsageError(
                f"this sweep of {names} has no recording in {self.folder}, and {MEASURE}=never. Measure it: "
                "`ngbkit publish --re-run` records what notebooks measure."
            )
        return None

    def keep(self, sweep: Sweep, guide: Guide | None, folder: Path) -> None:
        """Keep what a run has measured, in the place of an earlier recording of that sweep."""
        copy(folder, self._place(sweep, guide))

    def _place(self, sweep: Sweep, guide: Guide | None) -> Path:
        # What was measured within a budget is a part: who asks for the whole is not to get that.
        return self.folder / (sweep.id if guide is None else f"{sweep.id}-{guide.key}")


def recordings() -> Recordings | None:
    """Those that the environment names, if it does.

    Raises
    ------
    UsageError
        It asks for something that is not valid.
    """
    folder = os.environ.get(FOLDER)
    if not folder:
        return None
    measure = os.environ.get(MEASURE) or "missing"
    if measure not in get_args(Measure):
        raise UsageError(f"{MEASURE}={measure!r} does not fit; valid is {', '.join(get_args(Measure))}.")
    return Recordings(folder=Path(folder), measure=measure)  # type: ignore[arg-type]  # it was looked at


def copy(source: Path, target: Path) -> None:
    """Copy a run's folder; it is one as soon as its last file is there."""
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in _FILES:
        with replacing(target / name) as temporary:
            shutil.copyfile(source / name, temporary)


class Replay:
    """The guide of a run that is a recording: it measures nothing more, and says of the rest what its guide did."""

    key = "replay"

    def __init__(self, guide: Guide | None) -> None:
        self._guide = guide

    def choose(self, run: Run) -> Collection[str]:
        """Nothing."""
        del run
        return ()

    def left_s(self) -> float | None:
        """It has ended."""
        return None

    def complete(self, run: Run, data: xr.Dataset | xr.DataTree) -> xr.Dataset | xr.DataTree:
        """As the run's own guide."""
        return data if self._guide is None else self._guide.complete(run, data)
