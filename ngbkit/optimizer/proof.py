"""Proves that a rewritten network computes the same as the original: both in float64, on the same seeded inputs."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from ngbkit.device.equivalence import compute_relative_error
from ngbkit.workloads import exact, feeds, onnx
from ngbkit.workloads.base import TensorSpec, Workload

LIMIT = 1e-5
"""Rounding the weights of a rule to float32 costs an error of about 1e-7 per layer; a wrong rule costs about 1."""

_BUDGET_S = 300.0


def measure_error(original: Path, rewritten: Path, seed: int = 0) -> float:
    """Return the largest relative error of any output in float64; infinite if shapes differ or a value is not finite.

    Both ONNX files are static in every dimension and have the same inputs, drawn from `seed`.
    """
    workload = onnx.file(original)
    inputs = _draw_inputs(workload, seed)
    expected, actual = (exact.run(path, inputs, budget_s=_BUDGET_S) for path in (original, rewritten))
    if len(expected) != len(actual) or any(
        first.shape != second.shape for first, second in zip(expected, actual, strict=True)
    ):
        return math.inf
    if not all(np.isfinite(values).all() for values in actual):
        return math.inf
    return max(
        (compute_relative_error(first, second)[0] for first, second in zip(actual, expected, strict=True)), default=0.0
    )


def _draw_inputs(workload: Workload, seed: int) -> dict[str, np.ndarray]:
    specs = [TensorSpec.from_json(spec) for spec in workload.spec["inputs"]]
    arrays = feeds.draw(specs, {}, workload.spec["batch_size"] or 1, seed)
    return {spec.name: values for spec, values in zip(specs, arrays, strict=True)}
