"""Records for tests of journals."""

from __future__ import annotations

from ngbkit.sweep.records import Contract, Measurement


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
