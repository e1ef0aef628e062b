"""Plans that run in the test's own process."""

from __future__ import annotations

from typing import Any

from ngbkit import options
from ngbkit.api import Sweep
from ngbkit.device import plan
from ngbkit.device.spec import Spec
from ngbkit.files import Store
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Record


def build_spec(sweep: Sweep, **fields: Any) -> Spec:
    store = Store(options.get_state_dir() / "artifacts")
    for workload in sweep.workloads:
        for path in workload.artifacts.values():
            store.add(path)
    return Spec(run_id="run", device="cpu", state_dir=options.get_state_dir(), sweep=sweep, **fields)


def carry_out(sweep: Sweep, **fields: Any) -> tuple[dict[tuple[str, int], Record], list[dict[str, Any]]]:
    """Run a plan; return its records by compiler and batch size, and its events."""
    events: list[dict[str, Any]] = []
    assert plan.carry_out(build_spec(sweep, **fields), events.append) == "finished"
    trials = {trial.id: (trial.compiler, trial.batch_size) for trial in sweep.trials()}
    with Journal(plan.locate_journal(options.get_state_dir(), "cpu", "run"), writable=False) as journal:
        records = {trials[record.trial_id]: record for record in journal.records() if record.trial_id in trials}
    return records, events
