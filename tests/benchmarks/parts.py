"""Measures a long list of sweeps in parts, and resumes after any interruption."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from ngbkit import Sweep, runs
from ngbkit.dataset.storage import Data
from ngbkit.runs.progress_display import describe, open_display, watch


def measure(
    parts: Iterable[tuple[str, Sweep]], folder: Path, *, minutes: float = math.inf, retry: Collection[str] = ()
) -> list[Data]:
    """Measure each part, or the rest of it, and return the datasets of all runs.

    `parts` are sweeps by a name that identifies them in `folder`, which stores their runs; `minutes` is the time budget
    for starting parts, and `retry` lists the statuses of trials to run again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state_file = folder / "runs.json"
    run_ids: dict[str, str] = json.loads(state_file.read_text()) if state_file.exists() else {}
    deadline = time.monotonic() + 60 * minutes
    for name, sweep in parts:
        if time.monotonic() > deadline:
            break
        # A run of another sweep under this name is not resumed.
        same = name in run_ids and runs.read_sweep(runs.find(run_ids[name])).id == sweep.id
        run = runs.resume(run_ids[name], retry=retry) if same else runs.start(sweep)
        run_ids[name] = run.id
        state_file.write_text(json.dumps(run_ids))
        print(f"{name}: run {run.id}, {len(sweep)} trials", flush=True)
        with open_display() as display:
            watch(run, display)
        print(f"{name}: {run.state}, {describe(run)}", flush=True)
        if run.error is not None:
            raise run.error
    return [runs.load_dataset(runs.find(run_id)) for run_id in run_ids.values()]
