"""What a predictor learns from: graphs, and the seconds that each runtime took for them.

A dataset that is to be learned from elsewhere carries its graphs with it (`attach`), so that nobody has to build and to
export its networks again.
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
from ngbkit.figures.rows import family
from ngbkit.files import Store, replacing
from ngbkit.metrics import arrays
from ngbkit.predictor import drift, graphs
from ngbkit.predictor.graphs import Graph
from ngbkit.workloads import labels
from ngbkit.workloads.base import Factors, Source, Workload, content_hash
from ngbkit.workloads.export import export_for

Runtime = tuple[str, str]
"""A device and a compiler, with the options that are in its label."""

ATTRIBUTE = "graphs"
"""The attribute of a dataset that holds the graphs of its networks."""

VARIANTS = "variants"
"""The attribute that says which rules made the rewritten networks of a dataset: JSON, by the content hash of the file
that is the option ``graph`` of their columns."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Examples:
    """Graphs with what each runtime took for them, every one once.

    Parameters
    ----------
    graphs
        No two of the same digest.
    seconds
        The median latency, of shape ``(graphs, runtimes)``; NaN where there is none.
    runtimes
        What the columns are of.
    names
        Of the networks, with their factors and batch size.
    families
        What each network is one of, for a split that leaves whole families out.
    parents
        The network that each was rewritten from, or its own name: what a split keeps together.
    rules
        What it was rewritten by; empty for a network as it came.
    errors
        The standard errors of the logarithms of `seconds`, of those that several runs have measured; of a variant that
        one run has measured, of its speed-up over the network that it stands beside; else NaN. No prediction can be
        better than what this says.
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
        """Those at these places."""
        at = [int(place) for place in places]
        texts = {name: tuple(getattr(self, name)[one] for one in at) for name in _TEXTS}
        errors = None if self.errors is None else self.errors[at]
        graphs_ = tuple(self.graphs[one] for one in at)
        return replace(self, graphs=graphs_, seconds=self.seconds[at], errors=errors, **texts)

    @property
    def isolated(self) -> NDArray[np.bool_]:
        """Which of them are a single operator, measured by itself: what sums of operators are made of."""
        return np.array([one == OPERATOR for one in self.families], dtype=bool)


_TEXTS = ("names", "families", "parents", "rules")

LAYOUT = 1
"""Of a file of examples: another number where what it holds means something else."""

OPERATOR = "operator"
"""The family of single operators that were measured by themselves."""


def collect(*data: Data | Iterable[Data]) -> Examples:
    """The examples of datasets.

    Parameters
    ----------
    *data
        What runs gave, or lists of it; they need not fit into one grid. Coordinates along ``workload`` say what is
        known of each network, where there are any: ``family`` (else what its name says), ``parent``, ``rule``. A column
        with the option ``graph`` is of a rewritten network, a variant of the one that it stands beside.

    Raises
    ------
    UsageError
        No trial gave a latency, or a dataset does not say what a network is.

    Notes
    -----
    Of networks whose graphs are the same, up to the names and the values of weights, the first stays: copies on both
    sides of a split would be remembered and not predicted. Its latency is the geometric mean of all, with what runs
    differ by as a whole taken out (`ngbkit.predictor.drift`).
    """
    given = list(chain.from_iterable(one if isinstance(one, (list, tuple, Iterator)) else [one] for one in data))
    runtimes = list(dict.fromkeys(one for each in given for node in nodes(each).values() for one in _runtimes(node)))
    found: dict[str, tuple[Graph, _Row]] = {}
    measured: list[tuple[str, int, NDArray[np.float64]]] = []
    paired: dict[str, NDArray[np.float64]] = {}
    for run, each in enumerate(given):
        known = _stored(each)
        for row in (row for node in nodes(each).values() for row in _rows(each, node, runtimes)):
            one = known[row.key] if row.key in known else _built(each, row.key)
            found.setdefault(one.digest, (one, row))
            measured.append((one.digest, run, np.log(row.seconds)))
            if row.error is not None:
                paired[one.digest] = row.error
    if not found:
        raise UsageError("no trial of this dataset gave a latency; a predictor learns from those that are ok.")
    places = {digest: at for at, digest in enumerate(found)}
    devices = list(dict.fromkeys(device for device, _ in runtimes))
    logs, errors = drift.settle(
        np.stack([values for _, _, values in measured]),
        np.array([places[digest] for digest, _, _ in measured]),
        np.array([run for _, run, _ in measured]),
        np.array([devices.index(device) for device, _ in runtimes]),
    )
    for digest, error in paired.items():
        known_already = errors[places[digest]]
        errors[places[digest]] = np.where(np.isfinite(known_already), known_already, error)
    firsts = list(found.values())
    return Examples(
        graphs=tuple(one for one, _ in firsts),
        seconds=np.exp(logs),
        errors=errors,
        runtimes=tuple(runtimes),
        **{name: tuple(row.about[name] for _, row in firsts) for name in _TEXTS},
    )


def attach(data: Data) -> Data:
    """The dataset, with the graphs of its networks in an attribute: who has it need not build them."""
    keys = dict.fromkeys(row.key for node in nodes(data).values() for row in _rows(data, node, _runtimes(node)))
    known = _stored(data)
    found = data.copy()
    found.attrs = {**data.attrs, ATTRIBUTE: _packed({key: known.get(key) or _built(data, key) for key in keys})}
    return found


def save(examples: Examples, path: str | Path) -> Path:
    """Write examples as one netCDF file: their seconds, what they are, and their graphs."""
    about = {name: ("network", np.array(getattr(examples, name), dtype=object)) for name in _TEXTS}
    about |= {"device": ("runtime", _objects(device for device, _ in examples.runtimes))}
    about |= {"compiler": ("runtime", _objects(compiler for _, compiler in examples.runtimes))}
    seconds = (("network", "runtime"), examples.seconds, describe("s", "median latency of one inference of the batch"))
    data = xr.Dataset({"seconds": seconds, **about})
    if examples.errors is not None:
        said = describe("1", "standard error of the logarithm of that latency")
        data["errors"] = (("network", "runtime"), examples.errors, said)
    packed = _packed(dict(zip(map(str, range(len(examples))), examples.graphs, strict=True)))
    data.attrs = {ATTRIBUTE: packed, "layout": LAYOUT, "ngbkit_version": metadata.version("ngbkit")}
    return storage.save(data, Path(path), overwrite=True)


def load(path: str | Path) -> Examples:
    """The examples that `save` wrote.

    Raises
    ------
    UsageError
        The file holds something else.
    """
    data = storage.load(path)
    known = _stored(data)
    if not isinstance(data, xr.Dataset) or "seconds" not in data or not known:
        raise UsageError(f"{path} holds no examples; `save` writes such a file, and `collect` makes them of datasets.")
    if data.attrs.get("layout") != LAYOUT:
        raise UsageError(
            f"{path} is of layout {data.attrs.get('layout')}, and this ngbkit reads {LAYOUT}: collect the examples of "
            "their runs again."
        )
    return Examples(
        graphs=tuple(known[str(at)] for at in range(len(known))),
        seconds=data["seconds"].values,
        errors=data["errors"].values if "errors" in data else None,
        runtimes=tuple(zip(data["device"].values.tolist(), data["compiler"].values.tolist(), strict=True)),
        **{name: tuple(data[name].values.tolist()) for name in _TEXTS},
    )


def graph(workload: Workload, batch_size: int = 1, factors: Factors | None = None) -> Graph:
    """A network as a graph: built and exported here, unless that was done before.

    Parameters
    ----------
    workload
        The network.
    batch_size
        Samples in a call.
    factors
        A value of each factor that it varies.

    Raises
    ------
    UnsupportedError
        It has no ONNX form.
    """
    seed = options.get_options()["seed"]
    kept = _cache(workload, batch_size, factors or {})
    if kept.exists():
        return Graph.from_json(json.loads(zlib.decompress(kept.read_bytes())))
    source: Source = registry.load(registry.WORKLOADS, workload.source)
    network = source.build(workload, factors or {})
    with TemporaryDirectory(prefix="ngbkit-graph-") as folder:
        path = export_for(network, Path(folder), [batch_size], seed)[batch_size]
        found = graphs.read(path, batch_size)
    kept.parent.mkdir(parents=True, exist_ok=True)
    with replacing(kept) as temporary:
        temporary.write_bytes(zlib.compress(json.dumps(found.to_json()).encode()))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A network at one batch size, or a variant of it: where its graph is found, its seconds, what is known of it."""

    key: str
    seconds: NDArray[np.float64]
    about: Mapping[str, str]
    #: Of a variant, the standard error of the logarithm of its speed-up.
    error: NDArray[np.float64] | None = None


def _packed(known: Mapping[str, Graph]) -> str:
    written = {key: one.to_json() for key, one in known.items()}
    return base64.b85encode(zlib.compress(json.dumps(written).encode(), 9)).decode()


def _objects(texts: Iterable[str]) -> NDArray[Any]:
    return np.array(list(texts), dtype=object)


def _stored(data: Data) -> dict[str, Graph]:
    packed = data.attrs.get(ATTRIBUTE)
    known = json.loads(zlib.decompress(base64.b85decode(packed))) if packed else {}
    return {key: Graph.from_json(one) for key, one in known.items()}


def _key(workload: str, factors: Factors, batch_size: int, digest: str) -> str:
    return json.dumps([workload, dict(factors), batch_size, digest], sort_keys=True)


def _built(data: Data, key: str) -> Graph:
    name, factors, batch_size, digest = json.loads(key)
    store = Store(options.state_dir() / "artifacts")
    if digest and store.have(digest):
        return graphs.read(store.path(digest), batch_size)
    asked = json.loads(data.attrs.get("sweep") or "{}")
    described = next((one for one in asked.get("workloads", []) if one["name"] == name), None)
    if described is None or digest:
        raise UsageError(
            f"this dataset does not say what {name} is, so that there is no graph of it. Take what a run gave, or give "
            "its graphs with it by ngbkit.predictor.attach(ds) where it was measured."
        )
    return graph(Workload.from_json(described, store.path), batch_size, factors)


def _cache(workload: Workload, batch_size: int, factors: Factors) -> Path:
    about = {"workload": workload.id, "factors": dict(factors), "batch_size": batch_size, "layout": graphs.LAYOUT}
    return options.state_dir() / "cache" / "graphs" / f"{content_hash(about)}.json.z"


def _runtimes(node: xr.Dataset) -> list[Runtime]:
    compilers = dict.fromkeys(_split(label)[0] for label in _labels(node, "compiler"))
    return list(product(_labels(node, "device"), compilers))


def _labels(node: xr.Dataset, dim: str) -> list[Any]:
    return list(np.atleast_1d(node[dim].values).tolist())


def _split(label: str) -> tuple[str, str]:
    """The label of a column without the option ``graph``, and the content hash that this is."""
    name, brace, rest = label.partition("{")
    if not brace:
        return label, ""
    chosen = json.loads(brace + rest)
    digest = str(chosen.pop(GRAPH, ""))
    return labels.join(name, chosen), digest


def _rows(data: Data, node: xr.Dataset, runtimes: Sequence[Runtime]) -> Iterator[_Row]:
    """Of each network at each batch size, and of each variant of it."""
    rules = json.loads(data.attrs.get(VARIANTS) or "{}")
    dims = ["workload", *factor_dims(node), "batch_size", "device", "compiler"]
    median = xr.apply_ufunc(arrays.median, node["latency"], input_core_dims=[["repeat"]])
    median = median.expand_dims([dim for dim in dims if dim not in median.dims]).transpose(*dims)
    columns = [
        (device, *_split(label)) for device, label in product(_labels(node, "device"), _labels(node, "compiler"))
    ]
    known = {dim: median[dim].values.tolist() for dim in dims}
    flat = median.values.reshape(*median.shape[:-2], -1)
    rounds = _round_medians(node, dims).reshape(*flat.shape, -1)
    for at in np.ndindex(*flat.shape[:-1]):
        factors = {dim: known[dim][one] for dim, one in zip(dims, at, strict=False)}
        name, batch_size = str(factors.pop("workload")), int(factors.pop("batch_size"))
        about = _about(node, name, factors, batch_size, at[0])
        own = {(device, compiler): place for place, (device, compiler, digest) in enumerate(columns) if not digest}
        measured: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
        for place, (device, compiler, digest) in enumerate(columns):
            blank = (np.full(len(runtimes), np.nan), np.full(len(runtimes), np.nan))
            seconds, errors = measured.setdefault(digest, blank)
            value, error, beside = flat[at][place], np.nan, own.get((device, compiler))
            if digest and beside is not None and np.isfinite(flat[at][beside]):
                # Round by round, as every ratio is: whatever else the machine did hit both.
                gain, error = _paired(rounds[at][place], rounds[at][beside])
                value = flat[at][beside] * gain
            runtime = runtimes.index((device, compiler))
            seconds[runtime], errors[runtime] = value, error
        for digest, (seconds, errors) in measured.items():
            if not np.isfinite(seconds).any():
                continue
            key = _key(name, factors, batch_size, digest)
            if digest:
                rule = str(rules.get(digest, "rewritten"))
                changed = about | {"rules": rule, "names": f"{about['names']} {rule} {digest[:8]}"}
                yield _Row(key=key, seconds=seconds, about=changed, error=errors)
            else:
                yield _Row(key=key, seconds=seconds, about=about)


def _round_medians(node: xr.Dataset, dims: Sequence[str]) -> NDArray[np.float64]:
    """Of each trial the medians of its rounds; of a dataset without rounds, one."""
    latency = node["latency"].expand_dims([dim for dim in dims if dim not in node["latency"].dims])
    latency = latency.transpose(*dims, "repeat")
    if "round" not in node:
        return np.asarray(arrays.median(latency.values), np.float64)[..., None]
    rounds = node["round"].broadcast_like(latency).transpose(*dims, "repeat")
    return np.asarray(arrays.round_medians(latency.values, rounds.values), np.float64)


def _paired(variant: NDArray[np.float64], original: NDArray[np.float64]) -> tuple[float, float]:
    """The median of the ratios of two trials over their rounds, and the standard error of its logarithm."""
    ratios = np.log(variant / original)
    ratios = ratios[np.isfinite(ratios)]
    if not len(ratios):
        return float("nan"), float("nan")
    # Of the median of normal numbers, whose variance is pi / 2 times that of their mean.
    error = math.sqrt(math.pi / 2) * float(ratios.std(ddof=1)) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.nan
    return math.exp(float(np.median(ratios))), error


def _about(node: xr.Dataset, name: str, factors: Factors, batch_size: int, place: int) -> dict[str, str]:
    known = [each for each in ("family", "parent", "rule") if each in node.coords]
    told = {each: str(np.atleast_1d(node[each].values)[place]) for each in known}
    written = " ".join([name, *(f"{factor}={value:g}" for factor, value in factors.items()), f"batch {batch_size}"])
    # What is of one network at other factors and batch sizes is kept together too: it is nearly the same.
    return {
        "names": written,
        "families": told.get("family") or family(name),
        "parents": told.get("parent") or name,
        "rules": told.get("rule", ""),
    }
