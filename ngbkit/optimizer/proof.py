"""That a rewritten network computes what the original does: both in float64, on the same seeded inputs."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from ngbkit.device.equivalence import relative_error
from ngbkit.workloads import exact, feeds, onnx
from ngbkit.workloads.base import TensorSpec, Workload

LIMIT = 1e-5
"""Weights that a rule computes are rounded to float32: what that costs is about 1e-7 a layer, and a wrong rule 1."""

_BUDGET_S = 300.0


def error(original: Path, rewritten: Path, seed: int = 0) -> float:
    """The largest `ngbkit.device.equivalence.relative_error` of any output; infinite where their numbers differ.

    Parameters
    ----------
    original, rewritten
        ONNX files, static in every dimension, with the same inputs.
    seed
        Of the inputs.

    Raises
    ------
    UnsupportedError
        One of them cannot be run in float64.
    """
    workload = onnx.file(original)
    fed = _fed(workload, seed)
    wanted, got = (exact.run(path, fed, budget_s=_BUDGET_S) for path in (original, rewritten))
    if len(wanted) != len(got) or any(one.shape != other.shape for one, other in zip(wanted, got, strict=True)):
        return math.inf
    if not all(np.isfinite(one).all() for one in got):
        return math.inf
    return max((relative_error(one, other)[0] for one, other in zip(got, wanted, strict=True)), default=0.0)


def _fed(workload: Workload, seed: int) -> dict[str, np.ndarray]:
    specs = [TensorSpec.from_json(one) for one in workload.spec["inputs"]]
    arrays = feeds.draw(specs, {}, workload.spec["batch_size"] or 1, seed)
    return {spec.name: values for spec, values in zip(specs, arrays, strict=True)}
