"""Measures a long list of sweeps in parts, and resumes after any interruption."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import ngbkit
from ngbkit import Sweep, runs
from ngbkit.dataset.storage import Data
from ngbkit.runs import Run
from ngbkit.runs.folders import read_sweep
from ngbkit.runs.progress_display import describe, open_display, watch


def measure(
    parts: Iterable[tuple[str, Sweep]], folder: Path, *, minutes: float = math.inf, retry: Collection[str] = ()
) -> list[Data]:
    """Measure each part, or the rest of it, and return the datasets of all runs.

    `parts` are sweeps by a name that identifies them in `folder`, which stores their runs; `minutes` is the time budget
    for starting parts, and `retry` lists the statuses of trials to run again.
    """
    deadline = time.monotonic() + 60 * minutes
    for name, sweep in parts:
        if time.monotonic() > deadline:
            break
        go_on(name, sweep, folder, retry=retry)
    return [runs.load_dataset(runs.find(run_id)) for run_id in _load_run_ids(folder).values()]


def go_on(
    name: str,
    sweep: Sweep,
    folder: Path,
    *,
    budget: str | float | None = None,
    earlier: Path | None = None,
    retry: Collection[str] = (),
) -> Run:
    """Measure a part, or the rest of it, and return its run, which has ended.

    A budget is that of this call, and begins with the measurements of the dataset in the file `earlier`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    run_ids = _load_run_ids(folder)
    # A run of another sweep under this name is not resumed.
    same = name in run_ids and read_sweep(runs.find(run_ids[name])).id == sweep.id
    guidance: dict[str, Any] = {"budget": budget, "earlier": earlier}
    run = ngbkit.resume(run_ids[name], **guidance, retry=retry) if same else sweep.start(**guidance)
    _locate_run_ids(folder).write_text(json.dumps({**run_ids, name: run.id}))
    print(f"{name}: run {run.id}, {len(sweep)} trials", flush=True)
    with open_display() as display:
        watch(run, display)
    print(f"{name}: {run.state}, {describe(run)}", flush=True)
    if run.error is not None:
        raise run.error
    return run


def _load_run_ids(folder: Path) -> dict[str, str]:
    file = _locate_run_ids(folder)
    run_ids: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
    return run_ids


def _locate_run_ids(folder: Path) -> Path:
    return folder / "runs.json"
