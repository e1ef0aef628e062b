"""Records of known latencies, round by round, of networks that nobody builds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from ngbkit.api import build_gate_sweep
from ngbkit.dataset.assembly import assemble
from ngbkit.dataset.storage import Data
from ngbkit.metrics.gates import sides
from ngbkit.sweep.records import Contract, Failure, Measurement, Record
from ngbkit.sweep.trials import Trial
from ngbkit.workloads.base import Workload

QUIET = {"cpu": {"selfcheck": {"process_sd": 0.0}}}
"""A device on which two processes of one program never differ."""
ROUNDS = 20


def build_network(name: str, **factors: tuple[float, ...]) -> Workload:
    return Workload(name=name, source="timm", spec={"name": name}, takes=tuple(factors), factors=factors)


def build_record(
    trial: Trial, latency: ArrayLike, bundle: int | None = None, *, samples: int = 1, **fields: object
) -> Measurement:
    """Build the record of a trial with so many samples a round."""
    values = np.asarray(latency, float)
    return Measurement(
        trial_id=trial.id,
        latency_s=tuple(values.tolist()),
        rounds=tuple((np.arange(len(values)) // samples).tolist()),
        compile_time_s=1.0,
        first_call_time_s=1.0,
        contract=Contract(runtime="none", inputs="fresh"),
        rmse=1e-7,
        baseline_rmse=1e-7,
        max_abs_error=1e-7,
        bundle=bundle,
        **fields,
    )


def measure_sides(
    slowdown: float,
    *networks: Workload,
    compilers: tuple[str, ...] = ("onnxruntime",),
    seed: int = 0,
    noise: float = 0.01,
    drift: float = 0.3,
    bundles: tuple[int | None, int | None] = (7, 7),
    failures: Mapping[str, Failure | None] | None = None,
    failing_before: Collection[str] = (),
    environments: Mapping[str, object] = QUIET,
    **fields: object,
) -> Data:
    """A gate of one sample a round; the later side takes longer by a factor, and rounds drift by 30 %."""
    before = list(networks) or [build_network("net")]
    sweep = build_gate_sweep(before, before, compilers=compilers, repeats=ROUNDS)
    generator = np.random.default_rng(seed)
    common = np.exp(generator.normal(0, drift, ROUNDS))
    records: list[Record] = []
    for trial in sweep.trials():
        is_after = trial.workload.endswith(sides.AFTER)
        latency = common * np.exp(generator.normal(0, noise, ROUNDS)) * (slowdown if is_after else 1.0)
        if (is_after or trial.compiler in failing_before) and trial.compiler in (failures or {}):
            failure = (failures or {})[trial.compiler]
            records += [] if failure is None else [replace(failure, trial_id=trial.id)]
            continue
        records.append(build_record(trial, latency, bundles[is_after], **fields))
    return assemble(sweep, records, environments=environments, run_id="1")
