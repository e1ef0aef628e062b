"""Records for tests of journals, stored runs, and the records of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ngbkit.sweep.grid import Grid
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Contract, Measurement, Record
from ngbkit.workloads.base import hash_json

if TYPE_CHECKING:
    from ngbkit.runs import Run


def measurement(trial_id: str, samples: int = 3) -> Measurement:
    return Measurement(
        trial_id=trial_id,
        latency_s=tuple(0.001 * (index + 1) for index in range(samples)),
        rounds=tuple(range(samples)),
        compile_time_s=0.5,
        first_call_time_s=0.01,
        contract=Contract(runtime="torch eager", threads=2),
        rmse=1e-7,
        baseline_rmse=2e-7,
        max_abs_error=1e-6,
        facts={"nodes": 3},
    )


def store_run(run_id: str, sweep: Grid, records: Sequence[Record] | None = None, created: float | None = None) -> Path:
    """Store a run with these records, by default synthetic ones; return its folder."""
    # Tests of the device side import this module without xarray.
    import synthetic

    from ngbkit.runs.folders import build_metadata, get_runs_dir

    folder = get_runs_dir() / run_id
    folder.mkdir(parents=True)
    metadata = build_metadata(run_id, sweep)
    if created is not None:
        del metadata["hash"]
        metadata["created"] = created
        metadata["hash"] = hash_json(metadata)
    (folder / "run.json").write_text(json.dumps(metadata))
    with Journal(folder / "journal.sqlite") as journal:
        journal.finish(synthetic.make_records(sweep) if records is None else records)
    return folder


def load_records(run: Run) -> dict[tuple[str, int], Record]:
    """Load the records of the client's journal of a run, by compiler and batch size."""
    trials = {trial.id: (trial.compiler, trial.batch_size) for trial in run.sweep.trials()}
    with Journal(run.folder / "journal.sqlite", writable=False) as journal:
        return {trials[record.trial_id]: record for record in journal.records() if record.trial_id in trials}


def is_measuring(run: Run) -> bool:
    """Whether the first group is recorded and the second one is being timed."""
    return run.progress.done >= 2 and run.progress.text.startswith("measuring mlp batch 2")
