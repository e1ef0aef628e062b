"""A measurement that takes hours, in parts: ended in any way, it goes on where it was."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from ngbkit import Sweep, runs
from ngbkit.dataset.storage import Data
from ngbkit.runs.progress_display import describe, shown, watch


def measure(
    parts: Iterable[tuple[str, Sweep]], folder: Path, *, minutes: float = math.inf, retry: Collection[str] = ()
) -> list[Data]:
    """Measure each part, or what an earlier call left of it, and give what there is of all.

    Parameters
    ----------
    parts
        Sweeps with a name each, by which they are found again.
    folder
        Where it remembers their runs.
    minutes
        How long it may begin anything new.
    retry
        Statuses of trials to run again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    remembered = folder / "runs.json"
    known: dict[str, str] = json.loads(remembered.read_text()) if remembered.exists() else {}
    until = time.monotonic() + 60 * minutes
    for name, sweep in parts:
        if time.monotonic() > until:
            break
        # One that asked for something else under this name is none of it any more.
        same = name in known and runs.read_sweep(runs.find(known[name])).id == sweep.id
        run = runs.resume(known[name], retry=retry) if same else runs.start(sweep)
        known[name] = run.id
        remembered.write_text(json.dumps(known))
        print(f"{name}: run {run.id}, {len(sweep)} trials", flush=True)
        with shown() as show:
            watch(run, show)
        print(f"{name}: {run.state}, {describe(run)}", flush=True)
        if run.error is not None:
            raise run.error
    return [runs.load_dataset(runs.find(run_id)) for run_id in known.values()]
