"""Proves that a rewritten network computes the same as the original: both in float64, on the same seeded inputs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit import options
from ngbkit.device.equivalence import compute_relative_error
from ngbkit.predict.lowering.execution import draw_feed
from ngbkit.workloads import exact

LIMIT = 1e-5
"""Rounding the weights of a rule to float32 costs an error of about 1e-7 per layer; a wrong rule costs about 1."""

_BUDGET_S = 300.0
_NUMBERS = "biufc"  # kinds of NumPy's dtypes


def measure_error(original: Path, rewritten: Path, seed: int = 0) -> float:
    """Return the largest relative error in float64 of any output, for inputs from `seed`; infinite for other shapes."""
    with options.set_options(seed=seed):
        inputs = draw_feed(original)
    expected, actual = (exact.run(path, inputs, budget_s=_BUDGET_S) for path in (original, rewritten))
    return compare_outputs(actual, expected)


def compare_outputs(actual: Any, expected: Any) -> float:
    """Return the largest relative error of an output, or of those in a sequence; texts differ infinitely."""
    if isinstance(expected, (list, tuple)):
        if not isinstance(actual, (list, tuple)) or len(actual) != len(expected):
            return math.inf
        return max(map(compare_outputs, actual, expected), default=0.0)
    if expected is None or actual is None:  # an optional without a value
        return 0.0 if actual is expected else math.inf
    first, second = np.asarray(actual), np.asarray(expected)
    if first.shape != second.shape:
        return math.inf
    if second.dtype.kind not in _NUMBERS:
        return 0.0 if np.array_equal(first, second) else math.inf
    finite = np.isfinite(second)
    if second.size and not finite.any():
        return math.inf  # such values prove nothing
    if not np.array_equal(first[~finite], second[~finite], equal_nan=True) or not np.isfinite(first[finite]).all():
        return math.inf
    return compute_relative_error(first, second)[0]
