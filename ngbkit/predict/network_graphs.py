"""The graphs of networks: built and exported once, then cached or embedded in a dataset; and their profiles."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ngbkit import options
from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.storage import Data
from ngbkit.errors import UsageError
from ngbkit.files import Store, write_atomically
from ngbkit.predict import graphs, onnx_graphs
from ngbkit.predict import lowering as lowerings
from ngbkit.predict.graphs import UNPRUNED, Graph
from ngbkit.predict.labels.rows import build_rows, list_runtimes
from ngbkit.predict.lowering.execution import locate_values
from ngbkit.sweep.conversion import parse_workload
from ngbkit.workloads import building, feeds, values
from ngbkit.workloads.base import Factors, Workload, hash_json
from ngbkit.workloads.export import export_for

ATTRIBUTE = "graphs"
"""The attribute of a dataset that embeds the graphs of its networks."""


def graph(
    workload: Workload, batch_size: int = 1, factors: Factors | None = None, *, lowering: str = lowerings.EXPORT
) -> Graph:
    """A network as a graph: built and exported here, or loaded from the cache.

    Parameters
    ----------
    workload
        The network.
    batch_size
        Samples in a call.
    factors
        A value of each factor that the network varies.
    lowering
        A runtime that tells its graph, ``"onnxruntime"`` or ``"openvino"``, with its options: the operators that it
        executes, after its own optimisation; or ``"unpruned"``, with the operators that affect no output. Default: the
        network as it is exported, without these.

    Raises
    ------
    UnsupportedError
        The network has no ONNX form, or the runtime cannot load it.
    UsageError
        The runtime does not tell its graph.
    MissingDependencyError
        The runtime is not installed.
    """
    cached = _build_cache_path(workload, batch_size, factors or {}, lowering)
    if cached.exists():
        return Graph.from_json(json.loads(zlib.decompress(cached.read_bytes())))
    with TemporaryDirectory(prefix="ngbkit-graph-") as folder:
        result = _read(export_network(workload, batch_size, Path(folder), factors), batch_size, lowering)
    options.make_private(cached.parent)
    with write_atomically(cached) as temporary:
        temporary.write_bytes(zlib.compress(json.dumps(result.to_json()).encode()))
    return result


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
        The operators after the runtime's own fusions, as `ngbkit.predict.lower` returns them.
    cost : numpy.ndarray
        Milliseconds, of shape ``(operators,)``. Their sum is the median latency of calls
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
    with TemporaryDirectory(prefix="ngbkit-graph-") as folder:
        path = export_network(parsed, batch_size, Path(folder), factors)
        execution = lowerings.execute(path, runtime, batch_size, calls=calls, threads=threads)
    return execution.graph, 1e3 * execution.seconds


def export_network(workload: Workload, batch_size: int, folder: Path, factors: Factors | None = None) -> Path:
    """Export a network as one ONNX file, static in every dimension, with the values that its inputs need beside it."""
    seed = options.get_options()["seed"]
    network = building.build(workload, factors or {})
    path = export_for(network, folder, [batch_size], seed)[batch_size]
    if network.examples:
        arrays = feeds.draw(network.inputs, network.examples, batch_size, seed)
        names = [spec.name for spec in network.inputs]
        values.write(locate_values(path), dict(zip(names, arrays, strict=True)))
    return path


def _read(path: Path, batch_size: int, lowering: str) -> Graph:
    if lowering in (lowerings.EXPORT, UNPRUNED):
        return onnx_graphs.read(path, batch_size, keep_dead=lowering == UNPRUNED)
    return lowerings.lower(path, lowering, batch_size)


def attach(data: Data, *, lowered: bool = False) -> Data:
    """The dataset with the graphs of its networks in an attribute, so that `collect` need not build them.

    Parameters
    ----------
    data
        The dataset of a run, where its networks can be built.
    lowered
        As for `collect`. A dataset may have both.

    Raises
    ------
    UsageError
        The dataset lacks the description of a network; or `lowered` is impossible, as for `collect`.
    """
    lowering = find_lowering(data) if lowered else lowerings.EXPORT
    keys = dict.fromkeys(
        row.key for node in nodes(data).values() for row in build_rows(data, node, list_runtimes(node))
    )
    stored = load_graphs(data, lowering)
    labelled = data.copy()
    packed = pack({key: stored.get(key) or build_graph(data, key, lowering) for key in keys})
    labelled.attrs = {**data.attrs, _name_attribute(lowering): packed}
    return labelled


def find_lowering(*data: Data) -> str:
    """Return the lowering of datasets whose only compiler tells its graph; UsageError for others."""
    grids = [node for dataset in data for node in nodes(dataset).values()]
    return lowerings.find_lowering([compiler for node in grids for _, compiler in list_runtimes(node)])


def _name_attribute(lowering: str) -> str:
    return f"{ATTRIBUTE} of {lowering}" if lowering else ATTRIBUTE


def pack(graphs_: Mapping[str, Graph]) -> str:
    """Serialise graphs as text."""
    serialised = {key: graph_.to_json() for key, graph_ in graphs_.items()}
    return base64.b85encode(zlib.compress(json.dumps(serialised).encode(), 9)).decode()


def unpack_graphs(packed: str) -> dict[str, Graph]:
    """Return what `pack` serialised."""
    serialised = json.loads(zlib.decompress(base64.b85decode(packed)))
    return {key: Graph.from_json(graph_json) for key, graph_json in serialised.items()}


def load_graphs(data: Data, lowering: str = lowerings.EXPORT) -> dict[str, Graph]:
    packed = data.attrs.get(_name_attribute(lowering))
    try:
        return unpack_graphs(packed) if packed else {}
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError, zlib.error) as error:
        raise UsageError(f"damaged graphs of this dataset: {error!r}. Copy its file again.") from error


def build_graph(data: Data, key: str, lowering: str = lowerings.EXPORT) -> Graph:
    """Build the graph of a network of a dataset, or of a variant of it."""
    name, factors, batch_size, digest = json.loads(key)
    store = Store(options.get_state_dir() / options.LAYOUT.artifacts)
    if digest and store.contains(digest):
        return _read(store.locate(digest), batch_size, lowering)
    sweep = json.loads(data.attrs.get("sweep") or "{}")
    workload = next((spec for spec in sweep.get("workloads", []) if spec["name"] == name), None)
    if workload is None or digest:
        raise UsageError(
            f"no graph of {name}: this dataset lacks its description. Use the dataset of a run, or embed its graphs "
            f"where it was measured: ngbkit.predict.attach(ds{', lowered=True' if lowering else ''})."
        )
    return graph(Workload.from_json(workload, store.locate), batch_size, factors, lowering=lowering)


def _build_cache_path(workload: Workload, batch_size: int, factors: Factors, lowering: str) -> Path:
    key = {"workload": workload.id, "factors": dict(factors), "batch_size": batch_size, "layout": graphs.LAYOUT}
    if lowering == UNPRUNED:
        key |= {"lowering": lowering}
    elif lowering != lowerings.EXPORT:
        key |= {"lowering": lowering, "version": lowerings.describe_version(lowering), "of": lowerings.LAYOUT}
    return options.get_state_dir() / options.LAYOUT.cache / "graphs" / f"{hash_json(key)}.json.z"
