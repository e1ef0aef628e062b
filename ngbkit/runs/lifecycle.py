"""Start a run, and resume one."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ngbkit import options
from ngbkit.errors import UsageError
from ngbkit.files import Store, replacing
from ngbkit.runs.folders import FORMAT, find, read_sweep, runs_folder
from ngbkit.runs.recordings import Replay, copy
from ngbkit.runs.recordings import recordings as known_recordings
from ngbkit.runs.run import Guide, Run
from ngbkit.sweep.grid import Sweep
from ngbkit.sweep.records import OPEN, STATUSES

if TYPE_CHECKING:
    from ngbkit.cluster.engine import Engine


def start(sweep: Sweep, *, engines: Mapping[str, Engine] | None = None, guide: Guide | None = None) -> Run:
    """Start measuring a sweep, in the background.

    Parameters
    ----------
    sweep
        What to measure.
    engines
        An engine by device label, for devices that are not to be started here: see `ngbkit.attach`.
    guide
        What chooses among its trials; None: all of them are measured. `resume` measures what was left out.

    Returns
    -------
    Run
        Live; `Run.result` waits for the dataset. A recording, where one is to be taken (`ngbkit.runs.recordings`), ends
        at once.

    Raises
    ------
    UnknownNameError
        A device that there is not.
    UsageError
        Nothing may be measured, and there is no recording.
    """
    recordings = known_recordings()
    recorded = recordings.find(sweep, guide) if recordings is not None else None
    if recorded is not None:
        return _replayed(sweep, recorded, guide)
    _check_devices(sweep, engines)
    run_id = time.strftime("%Y%m%d-%H%M%S-") + secrets.token_hex(2)
    folder = runs_folder() / run_id
    store = Store(options.make_state_dir() / "artifacts")
    for workload in sweep.workloads:
        for digest, path in workload.artifacts.items():
            if not store.have(digest):
                store.push(path)
    folder.mkdir(parents=True, mode=0o700)
    with replacing(folder / "run.json") as temporary:
        about = {"format": FORMAT, "id": run_id, "created": time.time(), "sweep": sweep.to_json()}
        temporary.write_text(json.dumps(about))
    return Run(sweep, run_id, folder, (), engines or {}, guide, recordings)._begin()


def _replayed(sweep: Sweep, recorded: Path, guide: Guide | None) -> Run:
    """A run that has measured what the recording holds; under the same id, so that executing it twice is one run."""
    run_id = json.loads((recorded / "run.json").read_text())["id"]
    folder = runs_folder() / run_id
    if not (folder / "run.json").is_file():
        options.make_state_dir()
        copy(recorded, folder)
    return Run(sweep, run_id, folder, (), {}, Replay(guide))._begin()


def resume(run_id: str, *, retry: Collection[str] = (), engines: Mapping[str, Engine] | None = None) -> Run:
    """Go on with a run: only trials without a record are measured.

    Parameters
    ----------
    run_id
        Its id, or the beginning of one that no other run shares.
    retry
        Statuses of trials to run again although they have a record, such as ``["timeout", "crashed"]``.
    engines
        As for `start`.

    Raises
    ------
    RunNotFoundError, UsageError, FencedError
        No such run; not a status that can be retried; the run is still driven by another process.
    """
    valid = [status for status in STATUSES if status not in OPEN]
    for status in retry:
        if status not in valid:
            raise UsageError(f"retry {status!r} is not a status; valid are {', '.join(valid)}.")
    folder = find(run_id)
    sweep = read_sweep(folder)
    _check_devices(sweep, engines)
    return Run(sweep, folder.name, folder, retry, engines or {})._begin()


def _check_devices(sweep: Sweep, engines: Mapping[str, Engine] | None) -> None:
    from ngbkit.cluster import devices

    devices.check(device for device in sweep.devices if device not in (engines or {}))
