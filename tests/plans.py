"""Plans carried out in the test's own process."""

from __future__ import annotations

from typing import Any

from ngbkit import options
from ngbkit.device import plan
from ngbkit.device.spec import Spec
from ngbkit.files import Store
from ngbkit.sweep.grid import Sweep
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Record


def spec(sweep: Sweep, **more: Any) -> Spec:
    store = Store(options.state_dir() / "artifacts")
    for workload in sweep.workloads:
        for path in workload.artifacts.values():
            store.push(path)
    return Spec(run_id="run", device="cpu", state_dir=options.state_dir(), sweep=sweep, **more)


def carry_out(sweep: Sweep, **more: Any) -> tuple[dict[tuple[str, int], Record], list[dict[str, Any]]]:
    """The records of a plan by compiler and batch size, and its events."""
    events: list[dict[str, Any]] = []
    assert plan.carry_out(spec(sweep, **more), events.append) == "finished"
    trials = {trial.id: (trial.compiler, trial.batch_size) for trial in sweep.trials()}
    with Journal(plan.journal_path(options.state_dir(), "cpu", "run"), writable=False) as journal:
        found = {trials[record.trial_id]: record for record in journal.records() if record.trial_id in trials}
    return found, events
