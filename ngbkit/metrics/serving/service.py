"""A server and what it is asked for: deadline and batches, and the columns of a dataset that it runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.disturbance import select_samples
from ngbkit.dataset.long_form import expand_labels, list_factors, list_labels, list_trial_dims
from ngbkit.dataset.selection import select_rows
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError, UsageError
from ngbkit.metrics import ratios
from ngbkit.metrics.estimate import LEVEL
from ngbkit.metrics.serving import queueing
from ngbkit.metrics.serving.queueing import Server
from ngbkit.sweep import validation
from ngbkit.user_text import parse_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What a server must do: the deadline of which share of requests, and how it forms batches; times in seconds."""

    deadline: float
    quantile: float = 0.99
    max_delay: float = 0.0
    # The batch sizes of the server; None for every measured one.
    batch_sizes: tuple[int, ...] | None = None
    ci: float | None = LEVEL
    seed: int = 0

    @property
    def percentile(self) -> str:
        """The quantile as a word: ``p99``."""
        return f"p{100 * self.quantile:g}"

    @property
    def text(self) -> str:
        """The condition in words: ``p99 within 50 ms``."""
        return f"{self.percentile} within {format_seconds(self.deadline)}"


def parse_service(
    deadline: str | float,
    quantile: float = 0.99,
    max_delay: str | float | None = None,
    batch_sizes: int | Collection[int] | None = None,
    ci: float | None = LEVEL,
    seed: int = 0,
) -> Service:
    """Check what a user asks of a server."""
    if isinstance(quantile, bool) or not isinstance(quantile, (int, float)) or not 0.5 <= quantile < 1:
        raise UsageError(f"invalid quantile: got {quantile!r}; expected a share from 0.5 to below 1, such as 0.99.")
    if ci is not None and not (isinstance(ci, (int, float)) and 0 < ci < 1):
        raise UsageError(f"invalid ci: got {ci!r}; expected a probability between 0 and 1, such as 0.95.")
    sizes = None if batch_sizes is None else tuple(sorted(set(validation.counts("batch_sizes", batch_sizes))))
    return Service(
        deadline=parse_duration(deadline, "deadline"),
        quantile=float(quantile),
        max_delay=0.0 if max_delay in (None, 0) else parse_duration(max_delay or 0, "max_delay"),
        batch_sizes=sizes,
        ci=ci,
        seed=validation.count("seed", seed, 0),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A network with one compiler: its labels, its part of the dataset, and its server; None without a sample."""

    labels: Mapping[str, Any]
    part: xr.Dataset
    server: Server | None

    @property
    def process_sd(self) -> float:
        """The standard deviation of the logarithm of a process's latency: see `ngbkit.metrics.ratios`."""
        prepared = ratios.prepare(self.part)
        return float(prepared["process_sd"].max()) if "process_sd" in prepared else 0.0


def list_columns(data: Data, service: Service, select: Mapping[str, Any]) -> list[Column]:
    """The selected columns of a dataset, each with the server that serves most."""
    import pandas as pd

    parts = [(expand_labels(node), labels) for node in nodes(data).values() for labels in _list_labels(node)]
    if not any("latency" in node and node["latency"].notnull().any() for node, _ in parts):
        raise MetricError("capacity() draws from samples, which this dataset lacks. Use the dataset of the run.")
    names = list_label_names(data)
    table = pd.DataFrame([labels for _, labels in parts], columns=names)
    chosen = select_rows(table.assign(part=range(len(parts))), select, names)["part"].tolist()
    return [_build_column(grid, labels, service) for grid, labels in (parts[number] for number in chosen)]


def format_seconds(seconds: float) -> str:
    """Format a time: ``50 ms``, ``2 s``."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def list_label_names(data: Data) -> list[str]:
    return ["workload", *list_factors(data), "device", "compiler"]


def _build_column(grid: xr.Dataset, labels: Mapping[str, Any], service: Service) -> Column:
    part = grid.isel({dim: [list_labels(grid, dim).index(label)] for dim, label in labels.items()})
    server = _build_server(part.squeeze(list(labels), drop=True), service)
    if server is not None and service.batch_sizes is None:
        server = queueing.choose_limit(server, service.deadline, service.quantile, service.seed)
    return Column(labels=labels, part=part, server=server)


def _build_server(column: xr.Dataset, service: Service) -> Server | None:
    """The server of a column, whose batch sizes are those with samples; None without any."""
    column = select_samples(column)
    available = [int(size) for size in list_labels(column, "batch_size")]
    sizes = sorted(available if service.batch_sizes is None else {*available} & {*service.batch_sizes})
    rounds: dict[int, tuple[np.ndarray, ...]] = {}
    for size in sizes:
        trial = column.sel(batch_size=size)
        numbers = trial["round"].values if "round" in trial else None
        parts = queueing.split_rounds(trial["latency"].values, numbers)
        if parts:
            rounds[size] = parts
    if not rounds:
        return None
    return Server(sizes=tuple(rounds), rounds=tuple(rounds.values()), max_delay=service.max_delay)


def _list_labels(node: xr.Dataset) -> list[dict[str, Any]]:
    """The labels of every column of a node that a run requested, without batch sizes."""
    grid = expand_labels(node)
    dims = [dim for dim in list_trial_dims(grid) if dim in grid.dims and dim != "batch_size"]
    columns = [dict(zip(dims, values, strict=True)) for values in product(*(list_labels(grid, dim) for dim in dims))]
    if "status" not in grid:
        return columns
    requested = (grid["status"] != "").any("batch_size")
    are_requested = requested.transpose(*dims).values.ravel().tolist()
    return [labels for labels, is_requested in zip(columns, are_requested, strict=True) if is_requested]
