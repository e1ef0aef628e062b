"""Profiles the operators that a runtime executes for a network, for a figure of where the time goes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ngbkit.predictor import network_graphs
from ngbkit.predictor.graphs import Graph
from ngbkit.sweep.conversion import parse_workload
from ngbkit.workloads.base import Factors, Workload


def profile(
    workload: Any,
    batch_size: int = 1,
    factors: Factors | None = None,
    *,
    runtime: str = "onnxruntime",
    calls: int = 20,
    threads: int | None = None,
) -> tuple[Graph, NDArray[np.float64]]:
    """The operators that a runtime executes for a network on this CPU, and the milliseconds of each.

    Parameters
    ----------
    workload
        One network, as for `ngbkit.Sweep`.
    batch_size
        Samples in a call.
    factors
        A value of each factor that the network varies.
    runtime
        ``"onnxruntime"`` or ``"openvino"``, with its options.
    calls
        Timed calls; the median of each operator counts.
    threads
        Threads of the runtime. Default: this process's cores.

    Returns
    -------
    graph : Graph
        The operators after the runtime's own fusions, as `ngbkit.predictor.lower` returns them.
    cost : numpy.ndarray
        Milliseconds, of shape ``(operators,)``, for `ngbkit.predictor.draw`. Their sum is the median latency of calls
        without the profiler, which take turns with those under it; NaN for an operator that the profiler does not tell.

    Raises
    ------
    UsageError
        The runtime does not tell its graph.
    UnsupportedError
        The network has no ONNX form, or the runtime cannot run it.
    MissingDependencyError
        The runtime is not installed.

    Notes
    -----
    A profiler costs a few microseconds per operator, which can only be corrected on average: use its times to find hot
    spots and to fit predictors, not to compare compilers.
    """
    parsed = workload if isinstance(workload, Workload) else parse_workload(str(workload))
    execution = network_graphs.execute(parsed, batch_size, factors, lowering=runtime, calls=calls, threads=threads)
    return execution.graph, 1e3 * execution.seconds
