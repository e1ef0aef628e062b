"""A network in OpenVINO on this CPU: which nodes its plugin executes, with which kernels, and the counters of each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit.compilers.profiles import source_graph
from ngbkit.predictor import onnx_graphs
from ngbkit.predictor.graphs import Graph
from ngbkit.predictor.lowering import openvino_kernels
from ngbkit.predictor.lowering.execution import Floats, Probe, draw_feed


def open_probe(path: Path, folder: Path, resolved: Mapping[str, Any], threads: int) -> Probe:
    """Open a static file, whose nodes need no names; `resolved` are the options of the compiler."""
    from ngbkit.compilers.openvino_runtime import get_core
    from ngbkit.compilers.profiles.openvino import iterate_executed

    source = source_graph.write_named(path, folder)
    settings = {
        "PERFORMANCE_HINT": str(resolved["hint"]).upper(),
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": str(resolved["precision"]),
    }
    feed = draw_feed(source)
    request, profiled = (
        get_core().compile_model(str(source), "CPU", {**settings, "PERF_COUNT": counts}).create_infer_request()
        for counts in (False, True)
    )
    for each in (request, profiled):
        for name, value in feed.items():
            each.get_tensor(name).data[...] = value
    calls: list[dict[str, float]] = []

    def run_profiled() -> None:
        profiled.infer(share_outputs=True)
        calls.append({node.node_name: node.real_time.total_seconds() for node in profiled.profiling_info})

    def read() -> tuple[Graph, Floats]:
        executed = list(iterate_executed(profiled.get_compiled_model().get_runtime_model()))
        graph = openvino_kernels.build_graph(onnx_graphs.read(source), source_graph.read(source), executed)
        rows = [[call.get(operator.name, np.nan) for operator in graph.operators] for call in calls]
        return graph, np.array(rows, dtype=np.float64).reshape(len(calls), len(graph.operators))

    return Probe(run=lambda: request.infer(share_outputs=True), run_profiled=run_profiled, read=read)
