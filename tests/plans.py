"""Plans that run in the test's own process."""

from __future__ import annotations

from typing import Any

from ngbkit import options
from ngbkit.api import Sweep
from ngbkit.device import plan
from ngbkit.device.spec import Spec
from ngbkit.files import Store
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Failure, Measurement, Record


def build_spec(sweep: Sweep, **fields: Any) -> Spec:
    store = Store(options.get_state_dir() / "artifacts")
    for workload in sweep.workloads:
        for path in workload.artifacts.values():
            store.add(path)
    return Spec(run_id="run", device="cpu", state_dir=options.get_state_dir(), sweep=sweep, **fields)


def open_journal(run_id: str = "run", *, writable: bool = False) -> Journal:
    """Open the device's journal of a run."""
    return Journal(plan.locate_journal(options.get_state_dir(), "cpu", run_id), writable=writable)


def carry_out(sweep: Sweep, **fields: Any) -> tuple[dict[tuple[str, int], Record], list[dict[str, Any]]]:
    """Run a plan; return its records by compiler and batch size, and its events."""
    events: list[dict[str, Any]] = []
    assert plan.carry_out(build_spec(sweep, **fields), events.append) == "finished"
    trials = {trial.id: (trial.compiler, trial.batch_size) for trial in sweep.trials()}
    with open_journal() as journal:
        records = {trials[record.trial_id]: record for record in journal.records() if record.trial_id in trials}
    return records, events


def measure(sweep: Sweep, **fields: Any) -> dict[tuple[str, int], Measurement]:
    """Run a plan of which no trial fails; return its measurements by compiler and batch size."""
    records, _ = carry_out(sweep, **fields)
    assert [] == [record for record in records.values() if isinstance(record, Failure)]
    return records
