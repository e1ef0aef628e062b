"""A network in ONNX Runtime on this CPU: it writes the graph that it executes, and profiles its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ngbkit.predict import onnx_graphs
from ngbkit.predict.graphs import Graph
from ngbkit.predict.lowering.execution import Floats, Probe, draw_feed


def open_probe(path: Path, folder: Path, resolved: Mapping[str, Any], threads: int) -> Probe:
    """Open a static file, whose nodes need no names; `resolved` are the options of the compiler."""
    from ngbkit.compilers import onnxruntime_session as strict
    from ngbkit.compilers.onnxruntime import make_settings
    from ngbkit.compilers.profiles.onnxruntime import ProfiledSession, build_table, find_shapes

    def build_settings() -> Any:
        settings = make_settings(
            threads, str(resolved["optimization"]), bool(resolved["spinning"]), str(resolved["execution"])
        )
        settings.log_severity_level = 3  # it warns that such a graph only fits this machine
        return settings

    profiled = ProfiledSession(path, folder, build_settings())
    feed = draw_feed(profiled.onnx)
    session = strict.open_session(profiled.onnx, build_settings(), strict.CPU)

    def read() -> tuple[Graph, Floats]:
        events = profiled.read_events()
        graph = onnx_graphs.read(profiled.optimised, shapes=find_shapes(events))
        return graph, build_table([operator.name for operator in graph.operators], events)

    return Probe(run=lambda: session.run(None, feed), run_profiled=lambda: profiled.session.run(None, feed), read=read)
