"""The profiler of TensorRT: the layers of an engine in a second context, by TensorRT's own profiler and inspector.

An engine that was built with detailed verbosity lists the ONNX nodes of each layer in its metadata, as
``[ONNX Layer: conv1]`` with control characters between; otherwise the name of a layer joins those of its nodes:
``conv1 + relu1``, ``PWN(sigmoid, mul)``, ``{ForeignNode[first...last]}``.

Source: NVIDIA's documentation of `IProfiler`, `IExecutionContext` and `IEngineInspector`. It has only run on a fake.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.compilers.profiles import provenance, source_graph
from ngbkit.compilers.profiles.profile import Profile, Profiler
from ngbkit.compilers.profiles.provenance import Executed
from ngbkit.compilers.profiles.source_graph import SourceGraph

if TYPE_CHECKING:
    import numpy as np

    from ngbkit.hardware.accelerators.cuda import Driver

# Names may contain brackets, so a node ends at the bracket before a separator.
_NODE = re.compile(r"\[ONNX Layer: (.*?)\](?=[\x1e\x1f\[]|$)")
_JOINTS = re.compile(r" \+ |PWN\(|\{ForeignNode\[|\.\.\.|\]\}|, |\)")
# The parser's name of a node without one has that of its first output.
_UNNAMED = "node_of_"
_COPY_NAME = re.compile(r"Reformat|\[HostToDeviceCopy|\[DeviceToHostCopy")
# Types of layers that move or convert values, or order streams.
_COPIES = frozenset(
    {
        *("Cast", "Concatenation", "Constant", "Copy", "NoOp", "Padding", "Reformat", "Shuffle", "Signal", "Slice"),
        *("Wait", "signal", "wait"),
    }
)
_GRAPH_NOTE = "TensorRT profiles layers outside of the CUDA graph"

# The name of a layer and how many of that name were before it, in one call.
_Key = tuple[str, int]


def open_profiler(
    trt: Any, driver: Driver, onnx: Path, engine: Any, addresses: Mapping[str, int], *, graph: bool
) -> Profiler:
    """Open a second context of an engine on the same tensors, with a profiler; `graph`: calls are a CUDA graph."""
    context = engine.create_execution_context()
    if context is None:
        raise RuntimeError("TensorRT cannot create a second context of its engine for its profiler")
    for name, address in addresses.items():
        context.set_tensor_address(name, address)
    recorder = _make_recorder(trt)
    context.profiler = recorder
    # Layers are reported after the call, not waited for in it.
    context.enqueue_emits_profile = False
    stream = driver.stream.value
    calls: list[dict[_Key, float]] = []

    def run() -> None:
        if not context.execute_async_v3(stream):
            raise RuntimeError("TensorRT cannot enqueue the network under its profiler")
        driver.synchronize()

    def finish() -> None:
        recorder.layers.clear()
        context.report_to_profiler()
        calls.append(number_layers(recorder.layers))

    def read() -> Profile:
        text = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
        return build_profile(source_graph.read(onnx), json.loads(text)["Layers"], calls, graph=graph)

    return Profiler(run=run, read=read, finish=finish)


def _make_recorder(trt: Any) -> Any:
    """Build a profiler that lists the layers of a call, and the milliseconds of each."""

    class LayerRecorder(trt.IProfiler):  # type: ignore[misc]  # TensorRT has no types
        def __init__(self) -> None:
            trt.IProfiler.__init__(self)
            self.layers: list[tuple[str, float]] = []

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            self.layers.append((layer_name, ms))

    return LayerRecorder()


def number_layers(layers: Sequence[tuple[str, float]]) -> dict[_Key, float]:
    """Return the seconds of each layer by its name and its number among those of that name."""
    counts: Counter[str] = Counter()
    seconds: dict[_Key, float] = {}
    for name, spent_ms in layers:
        seconds[name, counts[name]] = 1e-3 * spent_ms
        counts[name] += 1
    return seconds


def build_profile(
    source: SourceGraph, layers: Sequence[Any], calls: Sequence[Mapping[_Key, float]], *, graph: bool
) -> Profile:
    """Build the profile of some calls from the layers of the engine; reported layers that it does not list are last."""
    import numpy as np

    executed = list_executed(layers, source)
    keys = list(number_layers([(kernel.name, 0.0) for kernel in executed]))
    unlisted = list(dict.fromkeys(key for call in calls for key in call if key not in set(keys)))
    executed += list_executed([name for name, _ in unlisted], source)
    keys += unlisted
    seconds: np.ndarray = np.array([[call.get(key, np.nan) for key in keys] for call in calls], dtype=np.float64)
    return Profile(
        nodes=source.nodes,
        kernels=provenance.map_kernels(source.nodes, executed),
        seconds=seconds.reshape(len(calls), len(keys)),
        notes=(_GRAPH_NOTE,) if graph else (),
    )


def list_executed(layers: Sequence[Any], source: SourceGraph) -> list[Executed]:
    """List the layers of an engine, as its inspector describes or names them, with the nodes that they compute."""
    owners: dict[str, int] = {}
    executed: list[Executed] = []
    for layer in (each if isinstance(each, Mapping) else {"Name": each} for each in layers):
        inputs = (owners.get(tensor["Name"]) for tensor in layer.get("Inputs", ()))
        executed.append(
            Executed(
                name=layer["Name"],
                kind=" ".join(filter(None, (layer.get("LayerType", ""), layer.get("TacticName", "")))),
                inputs=tuple(dict.fromkeys(index for index in inputs if index is not None)),
                claims=tuple(dict.fromkeys(_list_claims(layer, source))),
                moves=layer.get("LayerType") in _COPIES or bool(_COPY_NAME.match(layer["Name"])),
            )
        )
        owners.update((tensor["Name"], len(executed) - 1) for tensor in layer.get("Outputs", ()))
    return executed


def _list_claims(layer: Mapping[str, Any], source: SourceGraph) -> Iterator[int]:
    """Yield the nodes of a layer; the name of a copy has those of the layer that it is for, so it yields none."""
    if _COPY_NAME.match(layer["Name"]):
        return
    for node in _NODE.findall(layer.get("Metadata", "")) or _JOINTS.split(layer["Name"]):
        for form in (node, node.removeprefix(_UNNAMED)):
            if form in source.names:
                yield source.names[form]
                break
