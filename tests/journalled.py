"""Records for tests of journals, and those of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Contract, Measurement, Record

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


def load_records(run: Run) -> dict[tuple[str, int], Record]:
    """Load the records of the client's journal of a run, by compiler and batch size."""
    trials = {trial.id: (trial.compiler, trial.batch_size) for trial in run.sweep.trials()}
    with Journal(run.folder / "journal.sqlite", writable=False) as journal:
        return {trials[record.trial_id]: record for record in journal.records() if record.trial_id in trials}


def is_measuring(run: Run) -> bool:
    """Whether the first group is recorded and the second one is being timed."""
    return run.progress.done >= 2 and run.progress.text.startswith("measuring mlp batch 2")
