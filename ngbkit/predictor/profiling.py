"""What each operator of a network takes while ONNX Runtime runs it, for a picture of where the time goes."""

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
from ngbkit.predictor import graphs
from ngbkit.predictor.graphs import Graph
from ngbkit.workloads import feeds
from ngbkit.workloads.base import Factors, Network, Source, Workload
from ngbkit.workloads.export import export_for

# What ONNX Runtime puts behind the name of a node.
_END = "_kernel_time"
# A node that it has made of others is called by one of them, or by the value that it makes: "fused /conv1/Conv",
# "/relu/Relu_output_0_nchwc", "…_token_12".
_WORDS = re.compile(r"[\s,]+")


def profile(
    workload: Any, batch_size: int = 1, factors: Factors | None = None, *, calls: int = 20, threads: int | None = None
) -> tuple[Graph, NDArray[np.float64]]:
    """A network as a graph, and the milliseconds that each of its operators takes in ONNX Runtime on this CPU.

    Parameters
    ----------
    workload
        What `ngbkit.Sweep` takes, one network.
    batch_size
        Samples in a call.
    factors
        A value of each factor that it varies.
    calls
        Timed, after as many that are not; of each operator the median counts.
    threads
        Of ONNX Runtime. Default: its own choice.

    Returns
    -------
    graph : Graph
        As `ngbkit.predictor.graph` gives it.
    cost : numpy.ndarray
        Milliseconds, of shape ``(operators,)``, for `ngbkit.predictor.draw`. What the runtime has fused counts for that
        of its operators with the most work; the others take 0.

    Raises
    ------
    UnsupportedError
        It has no ONNX form.
    MissingDependencyError
        ONNX Runtime is not installed.

    Notes
    -----
    The profiler costs time of its own, a few microseconds a node: this shows where time goes, and is no measurement to
    compare compilers by.
    """
    import onnx_ir as ir

    from ngbkit.sweep.grid import parse_workload

    named: Workload = workload if isinstance(workload, Workload) else parse_workload(str(workload))
    source: Source = registry.load(registry.WORKLOADS, named.source)
    network = source.build(named, factors or {})
    seed = options.get_options()["seed"]
    with TemporaryDirectory(prefix="ngbkit-profile-") as folder:
        path = export_for(network, Path(folder), [batch_size], seed)[batch_size]
        model = ir.load(path)
        names = [node.name for node in model.graph]
        if not all(names) or len(set(names)) < len(names):
            # The profiler tells nodes by their names, and a file need not have any.
            for at, node in enumerate(model.graph):
                node.name = f"node_{at}"
            path = Path(folder) / "named.onnx"
            ir.save(model, path)
        found = graphs.read(path, batch_size)
        made = {str(one.name): str(node.name) for node in model.graph for one in node.outputs}
        events = _events(path, _feed(network, batch_size, seed), calls, threads, Path(folder))
    return found, _by_operator(found, made, events, calls)


def _feed(network: Network, batch_size: int, seed: int) -> Mapping[str, NDArray[Any]]:
    values = feeds.draw(network.inputs, network.examples, batch_size, seed)
    return {spec.name: value for spec, value in zip(network.inputs, values, strict=True)}


def _events(
    path: Path, feed: Mapping[str, NDArray[Any]], calls: int, threads: int | None, folder: Path
) -> list[dict[str, Any]]:
    from ngbkit.compilers.onnxruntime_runtime import onnxruntime

    chosen = onnxruntime.SessionOptions()
    chosen.intra_op_num_threads = threads or 0
    chosen.enable_profiling = True
    chosen.profile_file_prefix = str(folder / "profile")
    chosen.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, chosen, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    values = dict(zip(names, feed.values(), strict=True))
    for _ in range(2 * calls):
        session.run(None, values)
    found: list[dict[str, Any]] = json.loads(Path(session.end_profiling()).read_text())
    return [event for event in found if event.get("cat") == "Node" and event["name"].endswith(_END)]


def _by_operator(
    graph: Graph, made: Mapping[str, str], events: Sequence[Mapping[str, Any]], calls: int
) -> NDArray[np.float64]:
    """Milliseconds by operator; `made` gives by the name of a value the name of the node that makes it."""
    places = {one.name: at for at, one in enumerate(graph.operators)}
    took: dict[int, float] = {}
    durations: dict[str, list[float]] = {}
    for event in events:
        durations.setdefault(event["name"].removesuffix(_END), []).append(event["dur"] * 1e-3)
    for name, values in durations.items():
        at = _place(name, places, made)
        if at is not None:
            took[at] = took.get(at, 0.0) + float(np.median(values[-calls:]))
    found = np.zeros(len(graph.operators))
    for at, cost in took.items():
        found[_heaviest(graph, at, took)] += cost
    return found


def _place(name: str, places: Mapping[str, int], made: Mapping[str, str]) -> int | None:
    """The operator that a node of the runtime was made of, or whose value it makes: the longest name in its own."""
    words = [name, *_WORDS.split(name)]
    known = {**{value: places[node] for value, node in made.items() if node in places}, **places}
    fitting = [one for one in known if one and any(word.startswith(one) for word in words)]
    return known[max(fitting, key=len)] if fitting else None


def _heaviest(graph: Graph, at: int, took: Mapping[int, float]) -> int:
    """Of an operator and those that were fused into it, which take no time of their own, the one with the most work."""
    above: dict[int, list[int]] = {}
    for start, end in graph.edges:
        above.setdefault(end, []).append(start)
    fused, waiting = {at}, [at]
    while waiting:
        for one in above.get(waiting.pop(), ()):
            if one not in took and one not in fused:
                fused.add(one)
                waiting.append(one)
    return max(sorted(fused, reverse=True), key=lambda one: graph.operators[one].macs or 0)
