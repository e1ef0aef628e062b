"""The graphs of networks: each is built and exported once, then in a cache, or embedded in a dataset."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from ngbkit import options, registry
from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.storage import Data
from ngbkit.errors import UsageError
from ngbkit.files import Store, write_atomically
from ngbkit.predictor import graphs
from ngbkit.predictor.graphs import Graph
from ngbkit.predictor.rows import build_rows, list_runtimes
from ngbkit.workloads.base import Factors, Source, Workload, hash_json
from ngbkit.workloads.export import export_for

ATTRIBUTE = "graphs"
"""The attribute of a dataset that embeds the graphs of its networks."""


def graph(workload: Workload, batch_size: int = 1, factors: Factors | None = None) -> Graph:
    """A network as a graph: built and exported here, or loaded from the cache.

    Parameters
    ----------
    workload
        The network.
    batch_size
        Samples in a call.
    factors
        A value of each factor that the network varies.

    Raises
    ------
    UnsupportedError
        The network has no ONNX form.
    """
    cached = _build_cache_path(workload, batch_size, factors or {})
    if cached.exists():
        return Graph.from_json(json.loads(zlib.decompress(cached.read_bytes())))
    with TemporaryDirectory(prefix="ngbkit-graph-") as folder:
        result = graphs.read(export_network(workload, batch_size, Path(folder), factors), batch_size)
    options.make_private(cached.parent)
    with write_atomically(cached) as temporary:
        temporary.write_bytes(zlib.compress(json.dumps(result.to_json()).encode()))
    return result


def export_network(workload: Workload, batch_size: int, folder: Path, factors: Factors | None = None) -> Path:
    """Export a network as one ONNX file, static in every dimension."""
    source: Source = registry.load(registry.WORKLOADS, workload.source)
    network = source.build(workload, factors or {})
    return export_for(network, folder, [batch_size], options.get_options()["seed"])[batch_size]


def attach(data: Data) -> Data:
    """The dataset with the graphs of its networks in an attribute, so that `collect` need not build them."""
    keys = dict.fromkeys(
        row.key for node in nodes(data).values() for row in build_rows(data, node, list_runtimes(node))
    )
    stored = load_graphs(data)
    labelled = data.copy()
    labelled.attrs = {**data.attrs, ATTRIBUTE: pack({key: stored.get(key) or build_graph(data, key) for key in keys})}
    return labelled


def pack(graphs_: Mapping[str, Graph]) -> str:
    serialised = {key: graph_.to_json() for key, graph_ in graphs_.items()}
    return base64.b85encode(zlib.compress(json.dumps(serialised).encode(), 9)).decode()


def load_graphs(data: Data) -> dict[str, Graph]:
    packed = data.attrs.get(ATTRIBUTE)
    try:
        serialised = json.loads(zlib.decompress(base64.b85decode(packed))) if packed else {}
        return {key: Graph.from_json(graph_json) for key, graph_json in serialised.items()}
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError, zlib.error) as error:
        raise UsageError(f"damaged graphs of this dataset: {error!r}. Copy its file again.") from error


def build_graph(data: Data, key: str) -> Graph:
    name, factors, batch_size, digest = json.loads(key)
    store = Store(options.get_state_dir() / options.LAYOUT.artifacts)
    if digest and store.contains(digest):
        return graphs.read(store.locate(digest), batch_size)
    sweep = json.loads(data.attrs.get("sweep") or "{}")
    workload = next((spec for spec in sweep.get("workloads", []) if spec["name"] == name), None)
    if workload is None or digest:
        raise UsageError(
            f"no graph of {name}: this dataset lacks its description. Use the dataset of a run, or embed its graphs "
            "where it was measured: ngbkit.predictor.attach(ds)."
        )
    return graph(Workload.from_json(workload, store.locate), batch_size, factors)


def _build_cache_path(workload: Workload, batch_size: int, factors: Factors) -> Path:
    key = {"workload": workload.id, "factors": dict(factors), "batch_size": batch_size, "layout": graphs.LAYOUT}
    return options.get_state_dir() / options.LAYOUT.cache / "graphs" / f"{hash_json(key)}.json.z"
