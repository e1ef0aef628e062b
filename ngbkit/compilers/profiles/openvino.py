"""The profiler of OpenVINO's CPU plugin: the program compiled once more with its counters, outside of the cache.

Each executed node names the layers of the file that it replaces; a conversion to several layers appends to a name
(``node_conv2d/WithoutBiases``), and some layers, such as those of a normalisation, get names of the plugin's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ngbkit.compilers.profiles import provenance, source_graph
from ngbkit.compilers.profiles.profile import Profile, Profiler
from ngbkit.compilers.profiles.provenance import Executed
from ngbkit.compilers.profiles.source_graph import SourceGraph

if TYPE_CHECKING:
    from pathlib import Path

_SEPARATOR = "/"
# Where a file of OpenVINO carries the graph that it was converted from.
_SOURCE = ["ngbkit", "source"]
# Layers of the plugin that move or convert values.
_COPIES = frozenset(
    {
        *("Broadcast", "Concatenation", "Convert", "Pad", "Reorder", "Reshape", "Split", "StridedSlice", "Tile"),
        *("Transpose", "Gather", "DepthToSpace", "SpaceToDepth", "MemoryInput", "MemoryOutput"),
    }
)


def attach_source(model: Any, source: SourceGraph) -> None:
    """Attach the graph that a model was converted from, whose file then carries it."""
    model.set_rt_info(source.to_text(), _SOURCE)


def read_source(file: Path) -> SourceGraph | None:
    """Read the source graph of a file: of an ONNX file its own, of OpenVINO's the one that was attached, if any."""
    if file.suffix == ".onnx":
        return source_graph.read(file)
    from ngbkit.compilers.openvino_runtime import get_core

    model = get_core().read_model(str(file))
    return SourceGraph.from_text(model.get_rt_info(_SOURCE).value) if model.has_rt_info(_SOURCE) else None


def open_profiler(source: SourceGraph, compiled: Any, feed: Callable[[Any], None]) -> Profiler:
    """Open a request on a model that was compiled with `PERF_COUNT`; `feed` writes the inputs of a request."""
    request = compiled.create_infer_request()
    feed(request)
    calls: list[Mapping[str, float]] = []

    def run() -> None:
        request.infer(share_outputs=True)

    def record() -> None:
        calls.append({node.node_name: node.real_time.total_seconds() for node in request.profiling_info})

    return Profiler(run=run, read=lambda: _read(source, compiled, calls), finish=record)


def _read(source: SourceGraph, compiled: Any, calls: Sequence[Mapping[str, float]]) -> Profile:
    import numpy as np

    executed = list_executed(iterate_executed(compiled.get_runtime_model()), source)
    rows = [[call.get(kernel.name, np.nan) for kernel in executed] for call in calls]
    return Profile(
        nodes=source.nodes,
        kernels=provenance.map_kernels(source.nodes, executed),
        seconds=np.array(rows, dtype=np.float64).reshape(len(calls), len(executed)),
    )


def iterate_executed(model: Any) -> Iterator[tuple[Any, dict[str, str]]]:
    """Yield each node that runs in a call with its metadata; those with only constant inputs run once, at load time."""
    constant: set[str] = set()
    for node in model.get_ordered_ops():
        info = {name: value.value for name, value in node.get_rt_info().items() if hasattr(value, "value")}
        sources = {value.get_node().get_friendly_name() for value in node.input_values()}
        if info["layerType"] == "Const" or (sources and sources <= constant):
            constant.add(node.get_friendly_name())
        elif info["layerType"] not in {"Input", "Output"}:
            yield node, info


def list_executed(nodes: Iterator[tuple[Any, Mapping[str, str]]], source: SourceGraph) -> list[Executed]:
    """List executed nodes with the source nodes that their layers' names claim."""
    listed = list(nodes)
    indices = {node.get_friendly_name(): index for index, (node, _) in enumerate(listed)}
    executed: list[Executed] = []
    for node, info in listed:
        producers = (indices.get(value.get_node().get_friendly_name()) for value in node.input_values())
        layers = info.get("originalLayersNames", "").split(",")
        claims = (find_claim(name, source.names) for name in layers)
        executed.append(
            Executed(
                name=node.get_friendly_name(),
                kind=f"{info['layerType']} {info['primitiveType']}",
                inputs=tuple(dict.fromkeys(index for index in producers if index is not None)),
                claims=tuple(dict.fromkeys(index for index in claims if index is not None)),
                moves=info["layerType"] in _COPIES,
            )
        )
    return executed


def find_claim(name: str, names: Mapping[str, int]) -> int | None:
    """Find the source node that a layer was made from: a conversion to several layers appends to its name."""
    while name:
        if name in names:
            return names[name]
        name = name.rpartition(_SEPARATOR)[0]
    return None
