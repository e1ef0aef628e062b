"""A plan that measures nothing, carried out by an engine instead of its own: real records in a real journal.

`fanout` makes an engine load it and call `take_over`, which replaces the plan of every sweep. It reports at the
configured rate, and each event contains the time of its publication.
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
    """Replace the plan: ``rate`` trials a second.

    Engines report ``in_step``, as those that begin together and take equally long, or each at times of its own.
    """
    plan.run = partial(_run, **json.loads(settings))
    return "{}"


def find_send_time(event: Mapping[str, Any]) -> float | None:
    """Return the publication time of an event of such a plan, in seconds since the epoch; None for any other event.

    It is 0 for a record that the client recovered from the device's journal after its event was lost.
    """
    if event["kind"] == "record":
        return float(event["record"].started_at)
    text, mark, moment = event.get("text", "").rpartition(_SENT)
    return float(moment) if mark and text.startswith("scripted") else None


def draw_samples(trial_id: str) -> tuple[float, ...]:
    """Draw the latencies that such a plan reports for a trial."""
    generator = random.Random(trial_id)
    return tuple(generator.uniform(0.001, 0.002) for _ in range(SAMPLES))


def _run(spec_json: str, rate: float, in_step: bool = True) -> str:
    """Carry out all groups of a device in turn, instead of `ngbkit.device.plan.run`."""
    spec = Spec.from_json(spec_json)
    publish = plan._number_events(plan._find_publisher())
    path = plan.locate_journal(spec.state_dir, spec.device, spec.run_id)
    with Interrupt() as interrupt, Journal(path) as journal:
        description = environment.describe()
        journal.note("environment", spec.device, description)
        publish({"kind": "environment", "device": spec.device, "key": spec.device, "value": description})
        groups = [[trial.id for trial in group.trials] for group in spec.sweep.groups(spec.device)]
        finished, began = 0, time.monotonic()
        if not in_step:
            began += random.Random(spec.device).uniform(0, len(groups[0]) / rate)
        for ids in groups:
            finished += len(ids)
            pause_s = max(0.0, began + finished / rate - time.monotonic())
            if select.select([interrupt.descriptor], [], [], pause_s)[0]:
                return json.dumps({"state": "stopped"})
            _report(spec, publish, journal, ids)
    return json.dumps({"state": "finished"})


def _report(spec: Spec, publish: Callable[[dict[str, Any]], None], journal: Journal, ids: list[str]) -> None:
    """Report like the plan of a group in `ngbkit.device.groups.bench`, in its order: durable before visible."""
    publish({"kind": "stage", "device": spec.device, "text": _format_text()})
    journal.start(ids, "measure")
    for number in range(ROUNDS):
        round_fields = {"done": number, "total": ROUNDS, "trial_ids": ids}
        publish({"kind": "round", "device": spec.device, "text": _format_text(), **round_fields})
    measurements = [_build_record(trial_id) for trial_id in ids]
    journal.finish(measurements)
    for record in measurements:
        sent = replace(record, started_at=time.time())
        publish({"kind": "record", "device": spec.device, "record": records.to_json(sent)})


def _format_text() -> str:
    return f"scripted{_SENT}{time.time()!r}"


def _build_record(trial_id: str) -> Measurement:
    return Measurement(
        trial_id=trial_id,
        latency_s=draw_samples(trial_id),
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
