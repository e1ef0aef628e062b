"""A network in ONNX Runtime on this CPU: it writes the graph that it executes, and profiles its nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit.predictor import onnx_graphs
from ngbkit.predictor.graphs import Graph
from ngbkit.predictor.lowering.execution import Floats, Probe, draw_feed

# The suffix that ONNX Runtime appends to the name of a node.
_SUFFIX = "_kernel_time"


def open_probe(path: Path, folder: Path, resolved: Mapping[str, Any], threads: int) -> Probe:
    """Open a static file, whose nodes need no names; `resolved` are the options of the compiler."""
    from ngbkit.compilers import onnxruntime_session as strict
    from ngbkit.compilers.onnxruntime import make_settings

    def build_settings() -> Any:
        settings = make_settings(
            threads, str(resolved["optimization"]), bool(resolved["spinning"]), str(resolved["execution"])
        )
        settings.log_severity_level = 3  # it warns that such a graph only fits this machine
        return settings

    source = onnx_graphs.write_named(path, folder / "named.onnx")
    target = folder / "executed.onnx"
    profiled_settings = build_settings()
    strict.write_to(profiled_settings, target)
    profiled_settings.enable_profiling = True
    profiled_settings.profile_file_prefix = str(folder / "profile")
    feed = draw_feed(source)
    session = strict.open_session(source, build_settings(), strict.CPU)
    profiled = strict.open_session(source, profiled_settings, strict.CPU)
    events: list[dict[str, Any]] = []

    def read() -> tuple[Graph, Floats]:
        if not events:
            events.extend(json.loads(Path(profiled.end_profiling()).read_text()))
        nodes = [event for event in events if event.get("cat") == "Node" and event["name"].endswith(_SUFFIX)]
        graph = onnx_graphs.read(target, shapes=_find_shapes(nodes))
        return graph, _build_table(graph, nodes)

    return Probe(run=lambda: session.run(None, feed), run_profiled=lambda: profiled.run(None, feed), read=read)


def _find_shapes(events: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[int, ...]]]:
    """Find the shapes of the outputs of each node, by its name: the file lacks some of ONNX Runtime's own operators."""
    return {
        _get_name(event): [tuple(shape) for output in event["args"]["output_type_shape"] for shape in output.values()]
        for event in events
    }


def _build_table(graph: Graph, events: Sequence[Mapping[str, Any]]) -> Floats:
    """Return the seconds of each operator, a row per call; an operator of a subgraph has none."""
    durations: dict[str, list[float]] = {}
    for event in events:
        durations.setdefault(_get_name(event), []).append(1e-6 * event["dur"])
    calls = min((len(durations.get(operator.name, ())) for operator in graph.operators), default=0)
    calls = calls or max(map(len, durations.values()), default=1)
    columns = [durations.get(operator.name, [])[-calls:] for operator in graph.operators]
    padded = [column + [np.nan] * (calls - len(column)) for column in columns]
    return np.array(padded, dtype=np.float64).reshape(len(padded), calls).T


def _get_name(event: Mapping[str, Any]) -> str:
    return str(event["name"]).removesuffix(_SUFFIX)
