"""The networks that a predictor is asked about, in each of their forms: files, names, graphs, models, datasets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from ngbkit.dataset.storage import Data
from ngbkit.errors import UsageError
from ngbkit.predict.graphs import Graph
from ngbkit.predict.labels.example_set import Examples
from ngbkit.predict.labels.label_table import is_table
from ngbkit.predict.labels.loading import load_similar
from ngbkit.predict.labels.measured_networks import ImportedMeasurement, describe_mistake, parse_network
from ngbkit.predict.network_graphs import graph
from ngbkit.sweep.grid import Grid
from ngbkit.workloads.base import Factors, FactorValue, Workload

_DATASETS = (".nc", ".zarr")


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedNetwork:
    """A network to predict: its graph at a batch size, with the values of its factors."""

    name: str
    batch_size: int
    graph: Graph
    factors: Factors


def list_networks(
    networks: Any, batch_sizes: Iterable[int], factors: Mapping[str, Iterable[FactorValue]] | None, lowering: str
) -> list[PredictedNetwork]:
    """List the graphs of networks at each batch size and each value of their factors."""
    if isinstance(networks, Grid):
        if factors:
            raise UsageError(
                f"invalid factors: got {', '.join(factors)} beside a Sweep; expected none. Give them to the Sweep."
            )
        return [each for workload in networks.workloads for each in _vary(workload, networks, lowering)]
    if _is_labelled(networks):
        examples = load_similar(networks, lowering, "networks")
        return [_describe(graph_, name) for graph_, name in zip(examples.graphs, examples.names, strict=True)]
    items = [networks] if _is_single(networks) else list(networks)
    sources = [item if isinstance(item, Workload) else str(item) for item in items if _is_named(item)]
    sizes = list(batch_sizes)
    grid = Grid(sources, batch_sizes=sizes, factors=dict(factors or {})) if sources or not items else None
    workloads = iter(grid.workloads if grid is not None else ())
    listed: list[PredictedNetwork] = []
    for number, item in enumerate(items):
        if grid is not None and _is_named(item):
            listed += _vary(next(workloads), grid, lowering)
        elif isinstance(item, Graph):
            listed.append(_describe(item, f"network {number + 1}"))
        elif hasattr(item, "SerializeToString"):
            listed += (_export(item, number, size, lowering) for size in sizes)
        else:
            raise UsageError(describe_mistake(item))
    return listed


def _is_labelled(networks: Any) -> bool:
    """Return whether these are labels, such as the dataset of a run, whose networks are then predicted."""
    is_dataset = isinstance(networks, (str, Path)) and Path(networks).suffix.lower() in _DATASETS
    return isinstance(networks, (Examples, Data)) or is_table(networks) or is_dataset


def _is_named(item: Any) -> bool:
    return isinstance(item, (str, Path, Workload))


def _is_single(networks: Any) -> bool:
    return _is_named(networks) or isinstance(networks, Graph) or not isinstance(networks, Iterable)


def _vary(workload: Workload, grid: Grid, lowering: str) -> Iterator[PredictedNetwork]:
    for values in product(*workload.factors.values()):
        factors = dict(zip(workload.factors, values, strict=True))
        for size in grid.batch_sizes:
            graph_ = graph(workload, size, factors, lowering=lowering)
            yield PredictedNetwork(name=workload.name, batch_size=size, graph=graph_, factors=factors)


def _export(model: Any, number: int, size: int, lowering: str) -> PredictedNetwork:
    """Read the graph of an `onnx.ModelProto`."""
    measurement = ImportedMeasurement(
        network=model, seconds={}, batch_size=size, place=f"network {number + 1}", lowering=lowering
    )
    graph_ = parse_network(measurement, number).build_graph()
    return PredictedNetwork(name=f"network {number + 1}", batch_size=size, graph=graph_, factors={})


def _describe(graph_: Graph, name: str) -> PredictedNetwork:
    return PredictedNetwork(name=name, batch_size=graph_.batch_size, graph=graph_, factors={})
