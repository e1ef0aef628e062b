"""Events of a device with any field replaced by any JSON: each is refused with an error, or costs nothing else."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import synthetic
from arbitrary import TEXTS, mutations
from hypothesis import HealthCheck, given, seed, settings

from ngbkit import options, runs
from ngbkit.api import Sweep
from ngbkit.cluster import replies
from ngbkit.errors import NgbkitError
from ngbkit.figures import accessor  # noqa: F401  registers `ds.ngb`
from ngbkit.hardware import conditions, environment
from ngbkit.metrics import frames, tables
from ngbkit.metrics.rendering import to_texts
from ngbkit.runs.folders import build_metadata
from ngbkit.runs.progress_display import describe, explain_failure, list_warnings
from ngbkit.runs.run import Run
from ngbkit.sweep import records
from ngbkit.sweep.records import Failure
from ngbkit.sweep.trials import facts_key
from ngbkit.workloads.base import Workload

SWEEP = Sweep(
    [Workload(name="net", source="timm", spec={"name": "net"})],
    ["identity", "openvino"],
    [1, 4],
    devices=["far", "near"],
)
IDS = [trial.id for trial in SWEEP.trials("far")]
FACTS = {"parameters": 1000, "mult_adds": 5000, "macs": 5000, "weight_bytes": 4000, "baseline": "torch eager"}


def build_events() -> list[dict[str, Any]]:
    """Build a valid event of each kind."""
    measured = synthetic.make_records(SWEEP)[0]
    failed = Failure(
        trial_id=IDS[1], status="failed", stage="compile", error="RuntimeError: no", detail="a\nb", facts={"rmse": 0.1}
    )
    observed = conditions.observe(0)
    description = {
        **environment.describe(),
        "accelerator": "cpu",
        "conditions": {**observed, "warnings": ["other work uses 46 % of all cores"]},
        "peaks": {"flops": 1e11, "bytes_per_s": 1e10, "threads": 2},
        "selfcheck": {
            "process_sd": 0.01,
            "pairs": [{"compiler": "openvino", "group_sd": 0.02, "beside_busy": False}],
        },
        "history": {"deviations": {"openvino": 0.03}},
    }
    bodies = [
        {"kind": "record", "record": records.to_json(replace(measured, contended_samples=(1, 2), energy_j=1.0))},
        {"kind": "record", "record": records.to_json(failed)},
        {"kind": "facts", "key": facts_key("net", {}), "value": FACTS},
        {"kind": "environment", "key": "far", "value": description},
        {"kind": "stage", "text": "compiling net", "step": "compile", "trial_id": IDS[0]},
        {"kind": "round", "text": "measuring net", "done": 1, "total": 10, "trial_ids": IDS},
        {"kind": "tuning", "text": "tuning", "trial_id": IDS[0], "done": 1, "total": 9, "best_s": 0.1, "left_s": 2.0},
        {"kind": "salvaged", "records": 3, "journal": "/tmp/j.sqlite"},
    ]
    return [{"n": 0, "device": "far", **body} for body in bodies]


EVENTS = mutations(build_events()).map(json.dumps) | TEXTS


def check_event(text: str, counts: Counter[str]) -> None:
    """Send a run one event of the device `far`, and read all that the run then shows."""
    try:
        event = replies.parse_event("far", text, IDS)
    except NgbkitError as error:
        _check_text(str(error))
        counts["refused"] += 1
        return
    counts["ignored" if event is None else "accepted"] += 1
    if event is None:
        return
    with tempfile.TemporaryDirectory() as state_dir, options.set_options(state_dir=state_dir):
        folder = Path(state_dir, "runs", "20260101-000000-abcd")
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps(build_metadata(folder.name, SWEEP)))
        run = Run(SWEEP, folder.name, folder, (), {})
        genuine = {record.trial_id: record for record in synthetic.make_records(SWEEP) if record.trial_id not in IDS}
        run._journal.finish(genuine.values())
        run._on_events([event])
        _check_run(run, genuine)
        run._journal.close()
        assert [folder.name] == [summary.id for summary in runs.summaries()]


def _check_run(run: Run, genuine: dict[str, Any]) -> None:
    """Check that the records of other devices are as they were, and that every text can be shown and stored."""
    assert genuine.items() <= {record.trial_id: record for record in run.records()}.items()
    data = run.dataset()
    latency = data["latency"].sel(device="near").transpose(*data["latency"].dims[1:])
    expected = synthetic.make_dataset(SWEEP)["latency"].sel(device="near")
    np.testing.assert_array_equal(expected.values, latency.values[..., : expected.sizes["repeat"]])
    failure = explain_failure(run)
    for line in [describe(run), *list_warnings(run), *([str(failure)] if failure else [])]:
        _check_text(line)
    for failed in run.failures():
        _check_text(failed.error)
        _check_text(failed.detail.replace("\n", "").replace("\t", ""))
    _check_text(json.dumps(dict(data.attrs), ensure_ascii=False))
    frames.to_dataframe(data).to_json()
    try:
        data.ngb.speedup(ci=0.95)
        data.ngb.roofline()
        to_texts(tables.compact(data, "throughput")).to_text()
    except NgbkitError as error:
        _check_text(str(error))


def _check_text(text: str) -> None:
    text.encode()
    assert text.replace("\n", "").isprintable(), text


def run(cases: int, number: int) -> None:
    """Check that many events, and print how many were refused."""
    counts: Counter[str] = Counter()

    @seed(number)
    @settings(max_examples=cases, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(EVENTS)
    def check(text: str) -> None:
        check_event(text, counts)

    check()
    print(f"events: {counts.total()} cases, {counts['refused']} refused, {counts['accepted']} accepted", flush=True)
