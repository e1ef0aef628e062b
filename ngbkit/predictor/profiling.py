"""Profiles the operators of a network under ONNX Runtime, for a figure of where the time goes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ngbkit import options, registry
from ngbkit.compilers import onnx_graph
from ngbkit.predictor import graphs
from ngbkit.predictor.graphs import Graph
from ngbkit.workloads import feeds
from ngbkit.workloads.base import Factors, Network, Source, Workload
from ngbkit.workloads.export import export_for

# The suffix that ONNX Runtime appends to the name of a node.
_SUFFIX = "_kernel_time"
# A fused node is named after one of its operators, or after its output: "fused /conv1/Conv",
# "/relu/Relu_output_0_nchwc", "…_token_12".
_SEPARATOR = re.compile(r"[\s,]+")


def profile(
    workload: Any, batch_size: int = 1, factors: Factors | None = None, *, calls: int = 20, threads: int | None = None
) -> tuple[Graph, NDArray[np.float64]]:
    """A network as a graph, and the milliseconds of each of its operators in ONNX Runtime on this CPU.

    Parameters
    ----------
    workload
        One network, as for `ngbkit.Sweep`.
    batch_size
        Samples in a call.
    factors
        A value of each factor that the network varies.
    calls
        Timed calls, after as many untimed ones; the median of each operator counts.
    threads
        Threads of ONNX Runtime. Default: its own choice.

    Returns
    -------
    graph : Graph
        As `ngbkit.predictor.graph` returns it.
    cost : numpy.ndarray
        Milliseconds, of shape ``(operators,)``, for `ngbkit.predictor.draw`. The time of a fused node counts for its
        operator with the most work; the other fused operators take 0.

    Raises
    ------
    UnsupportedError
        The network has no ONNX form.
    MissingDependencyError
        ONNX Runtime is not installed.

    Notes
    -----
    The profiler itself costs a few microseconds per node: use its times to find hot spots, not to compare compilers.
    """
    from ngbkit.sweep.conversion import parse_workload

    parsed: Workload = workload if isinstance(workload, Workload) else parse_workload(str(workload))
    source: Source = registry.load(registry.WORKLOADS, parsed.source)
    network = source.build(parsed, factors or {})
    seed = options.get_options()["seed"]
    with TemporaryDirectory(prefix="ngbkit-profile-") as folder:
        exported = export_for(network, Path(folder), [batch_size], seed)[batch_size]
        # The profiler identifies nodes by their names, which a file may lack.
        path = graphs.write_named(exported, Path(folder) / "named.onnx")
        graph = graphs.read(path, batch_size)
        nodes = onnx_graph.read_operators(path)
        producers = {str(output): str(node.name) for node in nodes for output in node.output}
        events = _profile_events(path, _draw_feed(network, batch_size, seed), calls, threads, Path(folder))
    return graph, _sum_by_operator(graph, producers, events, calls)


def _draw_feed(network: Network, batch_size: int, seed: int) -> Mapping[str, NDArray[Any]]:
    values = feeds.draw(network.inputs, network.examples, batch_size, seed)
    return {spec.name: value for spec, value in zip(network.inputs, values, strict=True)}


def _profile_events(
    path: Path, feed: Mapping[str, NDArray[Any]], calls: int, threads: int | None, folder: Path
) -> list[dict[str, Any]]:
    from ngbkit.compilers.onnxruntime_runtime import onnxruntime

    session_options = onnxruntime.SessionOptions()
    session_options.intra_op_num_threads = threads or 0
    session_options.enable_profiling = True
    session_options.profile_file_prefix = str(folder / "profile")
    session_options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, session_options, providers=["CPUExecutionProvider"])
    names = [input_.name for input_ in session.get_inputs()]
    values = dict(zip(names, feed.values(), strict=True))
    for _ in range(2 * calls):
        session.run(None, values)
    events: list[dict[str, Any]] = json.loads(Path(session.end_profiling()).read_text())
    return [event for event in events if event.get("cat") == "Node" and event["name"].endswith(_SUFFIX)]


def _sum_by_operator(
    graph: Graph, producers: Mapping[str, str], events: Sequence[Mapping[str, Any]], calls: int
) -> NDArray[np.float64]:
    """Return milliseconds by operator; `producers` maps the name of a value to that of the node that computes it."""
    indices = {operator.name: index for index, operator in enumerate(graph.operators)}
    times: dict[int, float] = {}
    durations: dict[str, list[float]] = {}
    for event in events:
        durations.setdefault(event["name"].removesuffix(_SUFFIX), []).append(event["dur"] * 1e-3)
    for name, values in durations.items():
        index = _find_operator(name, indices, producers)
        if index is not None:
            times[index] = times.get(index, 0.0) + float(np.median(values[-calls:]))
    costs = np.zeros(len(graph.operators))
    for index, cost in times.items():
        costs[_find_heaviest(graph, index, times)] += cost
    return costs


def _find_operator(name: str, indices: Mapping[str, int], producers: Mapping[str, str]) -> int | None:
    """Return the operator that a node of the runtime computes: the longest name that one of its words starts with."""
    words = [name, *_SEPARATOR.split(name)]
    owners = {**{value: indices[node] for value, node in producers.items() if node in indices}, **indices}
    matches = [prefix for prefix in owners if prefix and any(word.startswith(prefix) for word in words)]
    return owners[max(matches, key=len)] if matches else None


def _find_heaviest(graph: Graph, root: int, times: Mapping[int, float]) -> int:
    """Return the operator with the most work of `root` and those fused into it, which have no time of their own."""
    sources: dict[int, list[int]] = {}
    for start, end in graph.edges:
        sources.setdefault(end, []).append(start)
    fused, queue = {root}, [root]
    while queue:
        for source in sources.get(queue.pop(), ()):
            if source not in times and source not in fused:
                fused.add(source)
                queue.append(source)
    return max(sorted(fused, reverse=True), key=lambda source: graph.operators[source].macs or 0)
