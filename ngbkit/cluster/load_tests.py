"""A load test of one network and compiler on one device."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable

from ngbkit.cluster.dispatch import build_spec, follow, push_artifacts, to_error
from ngbkit.cluster.engine import Engine
from ngbkit.device.serving.load import Load, LoadTest
from ngbkit.device.world import World
from ngbkit.sweep.grid import Grid


def serve(
    sweep: Grid, load: Load, engine: Engine, report: Callable[[str], object], record: Callable[[LoadTest], object]
) -> None:
    """Run the tests of a load on the one network and compiler of a sweep; `record` receives each; Ctrl-C ends one."""
    push_artifacts(engine, sweep)
    spec = build_spec(
        engine, sweep, run_id=f"capacity-{secrets.token_hex(2)}", world=engine.adapt(World.capture(sweep.workloads))
    )
    plan = engine.serve(spec, load)
    trial_ids, stop = {trial.id for trial in sweep.trials()}, threading.Event()

    def pass_on() -> None:
        for event in follow(plan, trial_ids, stop):
            if event["kind"] == "stage":
                report(event["text"])
            elif event["kind"] == "served":
                record(event["test"])

    try:
        pass_on()
    except BaseException:
        stop.set()
        pass_on()
        if not plan.is_done:
            engine.close()
        raise
    outcome = plan.fetch_outcome()
    if outcome["state"] == "error":
        raise to_error(engine.device, outcome)
    if outcome["state"] == "stopped":
        raise KeyboardInterrupt("stopped.")
