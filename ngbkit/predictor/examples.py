"""The examples that a predictor is fitted to: graphs, and the seconds of each on each runtime.

A dataset for learning elsewhere embeds its graphs (`ngbkit.predictor.attach`), so that nobody builds and exports its
networks again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from itertools import chain
from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ngbkit.dataset import storage
from ngbkit.dataset.assembly import describe, nodes
from ngbkit.dataset.storage import Data
from ngbkit.errors import UsageError
from ngbkit.predictor import drift
from ngbkit.predictor.graphs import Graph
from ngbkit.predictor.network_graphs import ATTRIBUTE, build_graph, load_graphs, pack
from ngbkit.predictor.rows import Row, Runtime, build_rows, list_runtimes


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
    runtimes = list(dict.fromkeys(chain.from_iterable(map(list_runtimes, grids))))
    first_rows: dict[str, tuple[Graph, Row]] = {}
    measurements: list[tuple[str, int, NDArray[np.float64]]] = []
    gain_errors: dict[str, NDArray[np.float64]] = {}
    for run, dataset in enumerate(datasets):
        stored = load_graphs(dataset)
        for row in (row for node in nodes(dataset).values() for row in build_rows(dataset, node, runtimes)):
            graph_ = stored.get(row.key) or build_graph(dataset, row.key)
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
    packed = pack(dict(zip(map(str, range(len(examples))), examples.graphs, strict=True)))
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
    stored = load_graphs(data)
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
