"""The examples that a predictor is fitted to: graphs, and the seconds of each on each runtime.

A dataset for learning elsewhere embeds its graphs (`attach`), so that nobody builds and exports its networks again.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from itertools import chain, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ngbkit import options, registry
from ngbkit.compilers.base import GRAPH
from ngbkit.dataset import storage
from ngbkit.dataset.assembly import describe, factor_dims, nodes
from ngbkit.dataset.storage import Data
from ngbkit.errors import UsageError
from ngbkit.files import Store, write_atomically
from ngbkit.metrics import arrays
from ngbkit.predictor import drift, graphs
from ngbkit.predictor.graphs import Graph
from ngbkit.workloads import labels
from ngbkit.workloads.base import Factors, Source, Workload, hash_json
from ngbkit.workloads.export import export_for
from ngbkit.workloads.paper import find_family

Runtime = tuple[str, str]
"""A device and a compiler, with the options that are in its label."""

ATTRIBUTE = "graphs"
"""The attribute of a dataset that embeds the graphs of its networks."""

VARIANTS = "variants"
"""The attribute with the rules that made the rewritten networks of a dataset: JSON, by the content hash in the option
``graph`` of their columns."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Examples:
    """Distinct graphs with their latencies on each runtime.

    Parameters
    ----------
    graphs
        Their digests are distinct.
    seconds
        The median latency, of shape ``(graphs, runtimes)``; NaN where there is none.
    runtimes
        A device and a compiler per column.
    names
        Networks with their factors and batch size.
    families
        The family of each network, for a split that leaves out whole families.
    parents
        The network that each was rewritten from, or its own name; a split keeps these together.
    rules
        The rules that rewrote it; empty for an original network.
    errors
        Standard errors of the logarithms of `seconds` for graphs measured in several runs; for a variant measured in
        one run, that of its speed-up over the original measured beside it; else NaN. No prediction can be more
        accurate.
    """

    graphs: tuple[Graph, ...]
    seconds: NDArray[np.float64]
    runtimes: tuple[Runtime, ...]
    names: tuple[str, ...]
    families: tuple[str, ...]
    parents: tuple[str, ...]
    rules: tuple[str, ...]
    errors: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.graphs)

    def take(self, places: Sequence[int] | NDArray[np.intp]) -> Examples:
        """The examples at these indices."""
        indices = [int(index) for index in places]
        texts = {name: tuple(getattr(self, name)[index] for index in indices) for name in _TEXTS}
        errors = None if self.errors is None else self.errors[indices]
        selected = tuple(self.graphs[index] for index in indices)
        return replace(self, graphs=selected, seconds=self.seconds[indices], errors=errors, **texts)

    @property
    def isolated(self) -> NDArray[np.bool_]:
        """Which examples are a single operator that was measured alone; sums of operators are fitted to these."""
        return np.array([family_name == OPERATOR for family_name in self.families], dtype=bool)


_TEXTS = ("names", "families", "parents", "rules")

LAYOUT = 1
"""The version of the format of a file of examples."""

OPERATOR = "operator"
"""The family of single operators that were measured alone."""


def collect(*data: Data | Iterable[Data]) -> Examples:
    """The examples of datasets.

    Parameters
    ----------
    *data
        Datasets of runs, or lists of them; their grids may differ. Optional coordinates along ``workload`` describe
        each network: ``family`` (default: derived from its name), ``parent``, ``rule``. A column with the option
        ``graph`` is a rewritten network, a variant of the network in the same row.

    Raises
    ------
    UsageError
        No trial has a latency, or a dataset lacks the description of a network.

    Notes
    -----
    Networks with the same graph, up to names and the values of weights, are one example with the labels of the first: a
    copy in the training and in the test set would be remembered, not predicted. Its latency is the geometric mean of
    all, without the drift between runs (`ngbkit.predictor.drift`).
    """
    lists = (each if isinstance(each, (list, tuple, Iterator)) else [each] for each in data)
    datasets = list(chain.from_iterable(lists))
    grids = [node for dataset in datasets for node in nodes(dataset).values()]
    runtimes = list(dict.fromkeys(chain.from_iterable(map(_list_runtimes, grids))))
    first_rows: dict[str, tuple[Graph, _Row]] = {}
    measurements: list[tuple[str, int, NDArray[np.float64]]] = []
    gain_errors: dict[str, NDArray[np.float64]] = {}
    for run, dataset in enumerate(datasets):
        stored = _load_graphs(dataset)
        for row in (row for node in nodes(dataset).values() for row in _build_rows(dataset, node, runtimes)):
            graph_ = stored.get(row.key) or _build_graph(dataset, row.key)
            first_rows.setdefault(graph_.digest, (graph_, row))
            measurements.append((graph_.digest, run, np.log(row.seconds)))
            if row.error is not None:
                gain_errors[graph_.digest] = row.error
    if not first_rows:
        raise UsageError("no latency in this dataset: a predictor needs trials with the status 'ok'. Measure again.")
    indices = {digest: index for index, digest in enumerate(first_rows)}
    devices = list(dict.fromkeys(device for device, _ in runtimes))
    logs, errors = drift.remove_drift(
        np.stack([values for _, _, values in measurements]),
        np.array([indices[digest] for digest, _, _ in measurements]),
        np.array([run for _, run, _ in measurements]),
        np.array([devices.index(device) for device, _ in runtimes]),
    )
    for digest, error in gain_errors.items():
        drift_errors = errors[indices[digest]]
        errors[indices[digest]] = np.where(np.isfinite(drift_errors), drift_errors, error)
    unique = list(first_rows.values())
    return Examples(
        graphs=tuple(graph_ for graph_, _ in unique),
        seconds=np.exp(logs),
        errors=errors,
        runtimes=tuple(runtimes),
        **{name: tuple(row.labels[name] for _, row in unique) for name in _TEXTS},
    )


def attach(data: Data) -> Data:
    """The dataset with the graphs of its networks in an attribute, so that `collect` need not build them."""
    keys = dict.fromkeys(
        row.key for node in nodes(data).values() for row in _build_rows(data, node, _list_runtimes(node))
    )
    stored = _load_graphs(data)
    labelled = data.copy()
    labelled.attrs = {**data.attrs, ATTRIBUTE: _pack({key: stored.get(key) or _build_graph(data, key) for key in keys})}
    return labelled


def save(examples: Examples, path: str | Path) -> Path:
    """Write examples as one netCDF file: their seconds, labels and graphs."""
    devices, compilers = zip(*examples.runtimes, strict=True)
    coords = {name: ("network", np.array(getattr(examples, name), dtype=object)) for name in _TEXTS}
    coords |= {"device": ("runtime", np.array(devices, dtype=object))}
    coords |= {"compiler": ("runtime", np.array(compilers, dtype=object))}
    seconds = (("network", "runtime"), examples.seconds, describe("s", "median latency of one inference of the batch"))
    data = xr.Dataset({"seconds": seconds, **coords})
    if examples.errors is not None:
        attributes = describe("1", "standard error of the logarithm of that latency")
        data["errors"] = (("network", "runtime"), examples.errors, attributes)
    packed = _pack(dict(zip(map(str, range(len(examples))), examples.graphs, strict=True)))
    data.attrs = {ATTRIBUTE: packed, "layout": LAYOUT, "ngbkit_version": metadata.version("ngbkit")}
    return storage.save(data, Path(path), overwrite=True)


def load(path: str | Path) -> Examples:
    """The examples that `save` wrote.

    Raises
    ------
    UsageError
        The file holds no examples, or its layout is unknown to this ngbkit.
    """
    data = storage.load(path)
    stored = _load_graphs(data)
    if not isinstance(data, xr.Dataset) or "seconds" not in data or not stored:
        expected = "expected a file that examples.save() wrote. `collect` builds examples from datasets."
        raise UsageError(f"{path} holds no examples; {expected}")
    layout = data.attrs.get("layout")
    if layout != LAYOUT:
        raise UsageError(f"invalid layout of {path}: got {layout}; expected {LAYOUT}. Collect from the runs again.")
    try:
        return Examples(
            graphs=tuple(stored[str(index)] for index in range(len(stored))),
            seconds=data["seconds"].values,
            errors=data["errors"].values if "errors" in data else None,
            runtimes=tuple(zip(data["device"].values.tolist(), data["compiler"].values.tolist(), strict=True)),
            **{name: tuple(data[name].values.tolist()) for name in _TEXTS},
        )
    except (KeyError, ValueError, TypeError) as error:
        raise UsageError(f"{path} holds no examples: {type(error).__name__}: {error}. Collect them again.") from error


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """The measurements of a network or of a variant at one batch size, with the key of its graph and its labels."""

    key: str
    seconds: NDArray[np.float64]
    labels: Mapping[str, str]
    #: The standard error of the logarithm of the speed-up of a variant.
    error: NDArray[np.float64] | None = None


def _pack(graphs_: Mapping[str, Graph]) -> str:
    serialised = {key: graph_.to_json() for key, graph_ in graphs_.items()}
    return base64.b85encode(zlib.compress(json.dumps(serialised).encode(), 9)).decode()


def _load_graphs(data: Data) -> dict[str, Graph]:
    packed = data.attrs.get(ATTRIBUTE)
    try:
        serialised = json.loads(zlib.decompress(base64.b85decode(packed))) if packed else {}
        return {key: Graph.from_json(graph_json) for key, graph_json in serialised.items()}
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError, zlib.error) as error:
        raise UsageError(f"damaged graphs of this dataset: {error!r}. Copy its file again.") from error


def _build_key(workload: str, factors: Factors, batch_size: int, digest: str) -> str:
    return json.dumps([workload, dict(factors), batch_size, digest], sort_keys=True)


def _build_graph(data: Data, key: str) -> Graph:
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


def _list_runtimes(node: xr.Dataset) -> list[Runtime]:
    compilers = dict.fromkeys(_split_label(label)[0] for label in _list_labels(node, "compiler"))
    return list(product(_list_labels(node, "device"), compilers))


def _list_labels(node: xr.Dataset, dim: str) -> list[Any]:
    return list(np.atleast_1d(node[dim].values).tolist())


def _split_label(label: str) -> tuple[str, str]:
    """Split the label of a column into the label without the option ``graph`` and the content hash in that option."""
    name, brace, rest = label.partition("{")
    if not brace:
        return label, ""
    options_ = json.loads(brace + rest)
    digest = str(options_.pop(GRAPH, ""))
    return labels.join(name, options_), digest


def _build_rows(data: Data, node: xr.Dataset, runtimes: Sequence[Runtime]) -> Iterator[_Row]:
    """Yield a row per network and batch size, and per variant."""
    rules = json.loads(data.attrs.get(VARIANTS) or "{}")
    dims = ["workload", *factor_dims(node), "batch_size", "device", "compiler"]
    median = xr.apply_ufunc(arrays.median, node["latency"], input_core_dims=[["repeat"]])
    median = median.expand_dims([dim for dim in dims if dim not in median.dims]).transpose(*dims)
    runtime_labels = product(_list_labels(node, "device"), _list_labels(node, "compiler"))
    columns = [(device, *_split_label(label)) for device, label in runtime_labels]
    labels_by_dim = {dim: median[dim].values.tolist() for dim in dims}
    flat = median.values.reshape(*median.shape[:-2], -1)
    rounds = _compute_round_medians(node, dims).reshape(*flat.shape, -1)
    for position in np.ndindex(*flat.shape[:-1]):
        factors = {dim: labels_by_dim[dim][index] for dim, index in zip(dims, position, strict=False)}
        name, batch_size = str(factors.pop("workload")), int(factors.pop("batch_size"))
        description = _describe_network(node, name, factors, batch_size, position[0])
        originals = {
            (device, compiler): column for column, (device, compiler, digest) in enumerate(columns) if not digest
        }
        measured: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
        for column, (device, compiler, digest) in enumerate(columns):
            blank = (np.full(len(runtimes), np.nan), np.full(len(runtimes), np.nan))
            seconds, errors = measured.setdefault(digest, blank)
            value, error, original = flat[position][column], np.nan, originals.get((device, compiler))
            if digest and original is not None and np.isfinite(flat[position][original]):
                # Round by round, as every ratio: a disturbance of the machine then affects both.
                gain, error = _compute_gain(rounds[position][column], rounds[position][original])
                value = flat[position][original] * gain
            runtime = runtimes.index((device, compiler))
            seconds[runtime], errors[runtime] = value, error
        for digest, (seconds, errors) in measured.items():
            if not np.isfinite(seconds).any():
                continue
            key = _build_key(name, factors, batch_size, digest)
            row = _Row(key=key, seconds=seconds, labels=description)
            if digest:
                rule = str(rules.get(digest, "rewritten"))
                variant = description | {"rules": rule, "names": f"{description['names']} {rule} {digest[:8]}"}
                row = replace(row, labels=variant, error=errors)
            yield row


def _compute_round_medians(node: xr.Dataset, dims: Sequence[str]) -> NDArray[np.float64]:
    """Return the medians of each round of each trial; a dataset without rounds has one."""
    latency = node["latency"].expand_dims([dim for dim in dims if dim not in node["latency"].dims])
    latency = latency.transpose(*dims, "repeat")
    if "round" not in node:
        return np.asarray(arrays.median(latency.values), np.float64)[..., None]
    rounds = node["round"].broadcast_like(latency).transpose(*dims, "repeat")
    return np.asarray(arrays.round_medians(latency.values, rounds.values), np.float64)


def _compute_gain(variant: NDArray[np.float64], original: NDArray[np.float64]) -> tuple[float, float]:
    """Return the median ratio of two trials over their rounds, and the standard error of its logarithm."""
    ratios = np.log(variant / original)
    ratios = ratios[np.isfinite(ratios)]
    if not len(ratios):
        return float("nan"), float("nan")
    # The variance of the median of normal numbers is pi / 2 times that of their mean.
    error = math.sqrt(math.pi / 2) * float(ratios.std(ddof=1)) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.nan
    return math.exp(float(np.median(ratios))), error


def _describe_network(node: xr.Dataset, name: str, factors: Factors, batch_size: int, index: int) -> dict[str, str]:
    names = [coord for coord in ("family", "parent", "rule") if coord in node.coords]
    coords = {coord: str(np.atleast_1d(node[coord].values)[index]) for coord in names}
    title = " ".join([name, *(f"{factor}={value:g}" for factor, value in factors.items()), f"batch {batch_size}"])
    # The parent also groups other factors and batch sizes of a network, which behave almost alike.
    return {
        "names": title,
        "families": coords.get("family") or find_family(name),
        "parents": coords.get("parent") or name,
        "rules": coords.get("rule", ""),
    }
