"""The cost of a profiler in each kernel, by calls with and without it that took turns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

# The share of a kernel's time that no correction takes away.
_LEAST_SHARE = 0.1
# The most that a profiler costs in a kernel. In a chain of 64 convolutions on 4 x 4, that of ONNX Runtime 1.31 cost
# 1.5 µs with one thread and 4 to 8 µs with two; that of OpenVINO 2026.4 nothing.
_MOST_COST_S = 1e-5


def subtract_cost(seconds: Floats, latency: Floats | float, profiled: Floats | float | None = None) -> Floats:
    """Subtract the cost of a profiler from the seconds of kernels, ``(kernels,)`` or ``(kernels, rounds)``.

    The kernels of a call do not take longer together than `latency`, of a call without the profiler in each round: the
    excess is the profiler's. So is the excess of a call under the profiler, `profiled`, where that was timed: it is in
    the kernels, since a profiler delays what they wait for. All kernels have the same part of it, as far as a profiler
    may cost that.
    """
    longest = np.nansum(seconds, axis=0)
    excess = float(np.median((longest if profiled is None else np.maximum(longest, profiled)) - latency))
    cost = np.clip(excess / max(len(seconds), 1), 0.0, _MOST_COST_S)
    return np.asarray(np.maximum(seconds - cost, _LEAST_SHARE * seconds))
