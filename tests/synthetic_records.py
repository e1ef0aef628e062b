"""Records of known latencies, round by round, of networks that nobody builds."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ngbkit.sweep.records import Contract, Measurement
from ngbkit.sweep.trials import Trial
from ngbkit.workloads.base import Workload

QUIET = {"cpu": {"selfcheck": {"process_sd": 0.0}}}
"""A device on which two processes of one program never differ."""


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
