"""A network in OpenVINO on this CPU: which nodes its plugin executes, with which kernels, and the counters of each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit.compilers.profiles import provenance, source_graph
from ngbkit.compilers.profiles.openvino import list_executed
from ngbkit.compilers.profiles.source_graph import SourceGraph
from ngbkit.predict import onnx_graphs
from ngbkit.predict.graphs import Graph, Operator, Tensor
from ngbkit.predict.lowering.execution import Floats, Probe, draw_feed
from ngbkit.workloads.base import hash_json

# OpenVINO's element types by the names of ONNX.
_DTYPES = {"f32": "float", "f64": "double", "f16": "float16", "bf16": "bfloat16", "boolean": "bool"}
_DTYPES |= {f"{sign}{bits}": f"{'u' if sign == 'u' else ''}int{bits}" for sign in "iu" for bits in (4, 8, 16, 32, 64)}

KERNEL = "kernel"
"""The attribute of an operator with the layer and the implementation that execute it."""

Executed = Sequence[tuple[Any, Mapping[str, str]]]


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
        graph = _build_graph(onnx_graphs.read(source), source_graph.read(source), executed)
        rows = [[call.get(operator.name, np.nan) for operator in graph.operators] for call in calls]
        return graph, np.array(rows, dtype=np.float64).reshape(len(calls), len(graph.operators))

    return Probe(run=lambda: request.infer(share_outputs=True), run_profiled=run_profiled, read=read)


def _build_graph(exported: Graph, source: SourceGraph, executed: Executed) -> Graph:
    """Build the graph of executed nodes, in topological order, of a network whose operators have names.

    The plugin names the layers that it fused into a node, and gives no attributes; those of the heaviest layer count,
    and the kernel that the plugin chose is one more.
    """
    sources = _assign(exported, source, executed)
    indices = {node.get_friendly_name(): index for index, (node, _) in enumerate(executed)}
    operators: list[Operator] = []
    edges: set[tuple[int, int]] = set()
    consumers: dict[tuple[int, int], list[int]] = {}
    for index, (node, info) in enumerate(executed):
        operators.append(_build_operator(node, info, [exported.operators[each] for each in sources[index]]))
        for value in node.input_values():
            producer = indices.get(value.get_node().get_friendly_name())
            if producer is not None:
                edges.add((producer, index))
                consumers.setdefault((producer, value.get_index()), []).append(index)
    shared = {tuple(dict.fromkeys(group)) for group in consumers.values()}
    return Graph(
        operators=tuple(operators),
        edges=tuple(sorted(edges)),
        inputs=exported.inputs,
        outputs=exported.outputs,
        shared=tuple(sorted(group for group in shared if len(group) > 1)),
        digest=_compute_digest(operators, edges),
    )


def _assign(exported: Graph, source: SourceGraph, executed: Executed) -> list[list[int]]:
    """Assign each operator of the file to the last of the executed nodes that compute it."""
    indices = {operator.name: index for index, operator in enumerate(exported.operators)}
    kernels = provenance.map_kernels(source.nodes, list_executed(iter(executed), source))
    owners = {node: place for place, kernel in enumerate(kernels) for node in kernel.nodes}
    sources: list[list[int]] = [[] for _ in executed]
    for node, place in sorted(owners.items()):
        index = indices.get(source.nodes[node].name)
        if index is not None:
            sources[place].append(index)
    return sources


def _build_operator(node: Any, info: Mapping[str, str], sources: Sequence[Operator]) -> Operator:
    inputs = tuple(_describe(value) for value in node.input_values() if not _is_constant(value))
    outputs = tuple(map(_describe, node.outputs()))
    kernel = f"{info['layerType']} {info['primitiveType']}"
    if not sources:  # the plugin's own, such as a change of the layout
        return Operator(
            name=node.get_friendly_name(),
            kind=f"openvino.{info['layerType']}",
            inputs=inputs,
            outputs=outputs,
            weights=(),
            attributes={KERNEL: kernel},
            macs=0,
        )
    heaviest = max(sources, key=lambda operator: operator.macs or 0)
    counts = [operator.macs for operator in sources if operator.macs is not None]
    return Operator(
        name=node.get_friendly_name(),
        kind=heaviest.kind,
        inputs=inputs,
        outputs=outputs,
        weights=heaviest.weights,
        attributes={**heaviest.attributes, KERNEL: kernel},
        macs=sum(counts) if len(counts) == len(sources) else None,
    )


def _is_constant(value: Any) -> bool:
    info = value.get_node().get_rt_info()
    return "layerType" in info and info["layerType"].value == "Const"


def _describe(value: Any) -> Tensor:
    shape, kind = value.get_partial_shape(), value.get_element_type()
    sides = tuple(shape.to_shape()) if shape.is_static else None
    name = kind.get_type_name()
    bits = 0 if sides is None else math.prod(sides) * kind.bitwidth
    return Tensor(shape=sides, dtype=_DTYPES.get(name, name), bytes=-(-bits // 8))


def _compute_digest(operators: Sequence[Operator], edges: Iterable[tuple[int, int]]) -> str:
    """Hash a graph without its names and its order of operators."""
    sources: dict[int, list[int]] = {}
    for start, end in sorted(edges):
        sources.setdefault(end, []).append(start)
    marks: list[str] = []
    for index, operator in enumerate(operators):
        marks.append(hash_json([operator.digest, sorted(marks[start] for start in sources.get(index, ()))]))
    return hash_json(sorted(marks))
