"""Runs a network in the profiler of a runtime: which operators it executes, and how long each of them takes.

The profiler costs time in each operator. Calls without it take turns with calls under it: where the operators' sum
exceeds the latency of such a call, the excess is subtracted from all alike, as far as it may be that cost. The rest is
scaled to the latency.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ngbkit import options
from ngbkit.device.timing.profiler_cost import subtract_cost
from ngbkit.predict.graphs import Graph
from ngbkit.workloads import feeds, onnx_inputs, onnx_model, values

Floats = NDArray[np.float64]

# Calls of either side before the other has its turn.
_TURN = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class Probe:
    """A network that is open in a runtime, with and without its profiler.

    `read` returns the graph of what ran, and the seconds of each operator, a row per call of `run_profiled`; NaN where
    the profiler does not tell.
    """

    run: Callable[[], object]
    run_profiled: Callable[[], object]
    read: Callable[[], tuple[Graph, Floats]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Execution:
    """The operators that a runtime executes for a network: `seconds` by operator, with the sum `latency` of a call."""

    graph: Graph
    seconds: Floats
    latency: float


def count_threads() -> int:
    """Return the number of this process's cores, which runtimes use by default."""
    return len(os.sched_getaffinity(0))


def draw_feed(path: Path) -> dict[str, NDArray[Any]]:
    """Draw the inputs of a static file, or read the values beside it."""
    specs, batch_size = onnx_inputs.describe(path, onnx_model.read_graph(path))
    examples = values.read(locate_values(path)) if locate_values(path).is_file() else {}
    arrays = feeds.draw(specs, examples, batch_size or 1, options.get_options()["seed"])
    return {spec.name: array for spec, array in zip(specs, arrays, strict=True)}


def locate_values(path: Path) -> Path:
    """Return the file of the values that the inputs of a static file need; it exists only where some are given."""
    return path.with_suffix(".npz")


def measure(probe: Probe, calls: int) -> Execution:
    """Run a network so many times with and without the profiler; the medians count."""
    latencies = []
    for run in (probe.run, probe.run_profiled):
        run()
    for _ in range(-(-calls // _TURN)):
        for _ in range(_TURN):
            start = time.perf_counter()
            probe.run()
            latencies.append(time.perf_counter() - start)
        for _ in range(_TURN):
            probe.run_profiled()
    graph, profiled = probe.read()
    latency = float(np.median(latencies))
    seconds = subtract_cost(np.median(profiled[1:], axis=0), latency)
    return Execution(graph=graph, seconds=seconds * (latency / np.nansum(seconds)), latency=latency)
