"""A plan that measures nothing, for an engine to carry out in the place of its own: real records, a real journal.

`fanout` has an engine load it and call `take_over`; from then on the engine carries out any sweep so. What it says it
says at the times that it is told to, and each event holds the moment at which it was published.
"""

from __future__ import annotations

import json
import random
import select
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ngbkit.device import plan
from ngbkit.device.interrupt import Interrupt
from ngbkit.device.spec import Spec
from ngbkit.hardware import environment
from ngbkit.sweep import records
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Contract, Measurement

SAMPLES, ROUNDS = 30, 10
_SENT = " at "


def take_over(settings: str) -> str:
    """Carry out plans so from now on: ``rate`` trials a second, or as many as go where it is null."""
    plan.run = partial(_run, rate=json.loads(settings)["rate"])
    return "{}"


def sent_at(event: Mapping[str, Any]) -> float | None:
    """When an event of such a plan was published, in seconds since the epoch; None for any other.

    It is 0 for a record that the client has found in the device's journal, since its event never came.
    """
    if event["kind"] == "record":
        return float(event["record"]["started_at"])
    text, mark, moment = event.get("text", "").rpartition(_SENT)
    return float(moment) if mark and text.startswith("scripted") else None


def samples(trial_id: str) -> tuple[float, ...]:
    """What such a plan says that a trial took."""
    generator = random.Random(trial_id)
    return tuple(generator.uniform(0.001, 0.002) for _ in range(SAMPLES))


def _run(spec_json: str, rate: float | None) -> str:
    """In the place of `ngbkit.device.plan.run`: all of a device's groups, in turn."""
    spec = Spec.from_json(spec_json)
    publish = plan._numbered(plan._publisher())
    path = plan.journal_path(spec.state_dir, spec.device, spec.run_id)
    with Interrupt() as interrupt, Journal(path) as journal:
        about = environment.describe()
        journal.note("environment", spec.device, about)
        publish({"kind": "environment", "device": spec.device, "key": spec.device, "value": about})
        done, began = 0, time.monotonic()
        for group in spec.sweep.groups(spec.device):
            ids = [trial.id for trial in group.trials]
            done += len(ids)
            due = began if rate is None else began + done / rate
            if select.select([interrupt.descriptor], [], [], max(0.0, due - time.monotonic()))[0]:
                return json.dumps({"state": "stopped"})
            _tell(spec, publish, journal, ids)
    return json.dumps({"state": "finished"})


def _tell(spec: Spec, publish: Callable[[dict[str, Any]], None], journal: Journal, ids: list[str]) -> None:
    """What the plan of a group tells, in the order in which `ngbkit.device.groups` does: durable before visible."""
    publish({"kind": "stage", "device": spec.device, "text": _words()})
    journal.start(ids, "measure")
    for number in range(ROUNDS):
        about = {"done": number, "total": ROUNDS, "trial_ids": ids}
        publish({"kind": "round", "device": spec.device, "text": _words(), **about})
    found = [_record(trial_id) for trial_id in ids]
    journal.finish(found)
    for record in found:
        sent = replace(record, started_at=time.time())
        publish({"kind": "record", "device": spec.device, "record": records.to_json(sent)})


def _words() -> str:
    return f"scripted{_SENT}{time.time()!r}"


def _record(trial_id: str) -> Measurement:
    return Measurement(
        trial_id=trial_id,
        latency_s=samples(trial_id),
        rounds=tuple(number * ROUNDS // SAMPLES for number in range(SAMPLES)),
        compile_time_s=1.0,
        first_call_time_s=0.01,
        contract=Contract(runtime="scripted", notes="nothing was measured"),
        rmse=2e-7,
        baseline_rmse=2e-7,
        max_abs_error=1e-6,
        cpu_percent=90.0,
        peak_memory_bytes=200_000_000,
        facts={"synthetic": True},
    )
