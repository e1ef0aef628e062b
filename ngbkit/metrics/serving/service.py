"""A server and what it is asked for: deadline and batches, and the columns of a dataset that it runs."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import attrs

from ngbkit import options, validation
from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import list_factors, to_frame
from ngbkit.dataset.selection import select_rows
from ngbkit.dataset.storage import Data
from ngbkit.device.serving.load import QUANTILES, Load
from ngbkit.errors import MetricError, NgbkitError, UnknownNameError, UsageError
from ngbkit.files import Store
from ngbkit.sweep.conversion import to_batch_sizes
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.records import MEASURED
from ngbkit.user_text import format_seconds, parse_duration

SECONDS = 10.0
"""The shortest duration of a test; tests of MLPerf's submissions take 600 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The requirements of a server: the deadline of a share of its requests, in seconds, and its batch sizes."""

    deadline: float
    quantile: float
    # The batch sizes of the server; None for every measured one whose calls keep the deadline.
    batch_sizes: tuple[int, ...] | None
    # The shortest duration of a test.
    seconds: float
    # Of the times of requests.
    seed: int

    def build_load(self, limit: float) -> Load:
        """Build the load of a server that serves at most `limit` requests per second."""
        return Load(
            deadline=self.deadline,
            quantile=self.quantile,
            seconds=self.seconds,
            limit=limit,
            seed=self.seed,
        )

    @property
    def percentile(self) -> str:
        """The quantile as a word: ``p99``."""
        return f"p{100 * self.quantile:g}"

    @property
    def text(self) -> str:
        """The condition in words: ``p99 within 50 ms``."""
        return f"{self.percentile} within {format_seconds(self.deadline)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedColumn:
    """A network with one compiler on a device: its labels, and its server, or why there is none."""

    labels: Mapping[str, Any]
    batch_sizes: tuple[int, ...] = ()
    # The requests per second of full batches in a row, of the best size: no higher rate can be served.
    limit: float = math.nan
    reason: str = ""
    # No rate keeps the deadline, and no measurement is necessary.
    is_late: bool = False


def parse_service(
    deadline: str | float,
    quantile: float = 0.99,
    batch_sizes: int | Collection[int] | None = None,
    seconds: float = SECONDS,
    seed: int = 0,
) -> Service:
    """Check what a user asks of a server."""
    if quantile not in QUANTILES:
        raise UsageError(
            f"invalid quantile: got {quantile!r}; expected one that LoadGen reports: {', '.join(map(str, QUANTILES))}."
        )
    return Service(
        deadline=parse_duration(deadline, "deadline"),
        quantile=float(quantile),
        batch_sizes=None if batch_sizes is None else tuple(sorted({*to_batch_sizes(batch_sizes)})),
        seconds=validation.check("seconds", validation.Duration, seconds),
        seed=validation.check("seed", validation.Count, seed),
    )


def list_columns(data: Data, service: Service, select: Mapping[str, Any]) -> list[ServedColumn]:
    """The selected columns of a dataset, each with its server."""
    import pandas as pd

    names = list_label_names(data)
    variables = ("throughput", "status", "contract")
    frames = [to_frame(node[[name for name in variables if name in node]]) for node in nodes(data).values()]
    frame = pd.concat(frames, ignore_index=True).reindex(columns=[*names, "batch_size", *variables])
    requested = frame[frame["status"].ne("")]
    selected = select_rows(requested, select, names)
    return [
        _build_column(dict(zip(names, labels, strict=True)), group.to_dict("records"), service)
        for labels, group in selected.groupby(names, sort=False, dropna=False)
    ]


def _build_column(labels: dict[str, Any], trials: list[dict[Any, Any]], service: Service) -> ServedColumn:
    sizes = [int(trial["batch_size"]) for trial in trials]
    if service.batch_sizes is not None and not {*sizes} & {*service.batch_sizes}:
        raise UnknownNameError("batch size", ",".join(map(str, service.batch_sizes)), map(str, sizes))
    rates = {
        int(trial["batch_size"]): float(trial["throughput"])
        for trial in trials
        if trial["throughput"] > 0 and trial["batch_size"] in (service.batch_sizes or sizes)
    }
    if not rates:
        statuses = dict.fromkeys(str(trial["status"]) for trial in trials)
        reason = ", ".join(status for status in statuses if status not in (*MEASURED, "nan")) or "no samples"
        return ServedColumn(labels=labels, reason=reason)
    overlap = max(_read_overlap(trial["contract"]) for trial in trials)
    if overlap > 1:
        return ServedColumn(labels=labels, reason=f"not served: a call has {overlap} inferences in flight")
    calls = {size: size / rate for size, rate in rates.items()}
    in_time = [size for size, call_s in calls.items() if call_s <= service.deadline]
    if not in_time:
        smallest = min(calls)
        reason = f"a call of batch {smallest} takes {format_seconds(calls[smallest])}"
        return ServedColumn(labels=labels, limit=max(rates.values()), reason=reason, is_late=True)
    chosen = tuple(sorted(in_time if service.batch_sizes is None else rates))
    return ServedColumn(labels=labels, batch_sizes=chosen, limit=max(rates[size] for size in chosen))


def _read_overlap(contract: Any) -> int:
    return int(json.loads(contract).get("overlap", 1)) if str(contract).startswith("{") else 1


def build_question(data: Data, column: ServedColumn, service: Service) -> dict[str, Any]:
    """Build the question that a search answers: what is served, and what it must keep, as plain JSON."""
    sweep = build_sweep(data, column)
    # Files of earlier searches are named after questions that had a delay too.
    settings = {**asdict(service), "max_delay": 0.0, "batch_sizes": list(sweep.batch_sizes)}
    return {"sweep": sweep.to_json(), "service": settings}


def build_sweep(data: Data, column: ServedColumn) -> Grid:
    """Build the part of a dataset's sweep with one network, factors and compiler, on one device."""
    sweep, labels = _read_sweep(data), column.labels
    workload = next((workload for workload in sweep.workloads if workload.name == labels["workload"]), None)
    if workload is None:
        raise MetricError(
            f"the sweep of this dataset has no network {labels['workload']!r}. Use the dataset of one run."
        )
    # A label may be a number of pandas: the level itself is what the network is built with.
    factors = {
        name: tuple(level for level in levels if level == labels[name])
        for name, levels in workload.factors.items()
        if name in labels
    }
    return attrs.evolve(
        sweep,
        workloads=(replace(workload, factors={**workload.factors, **factors}),),
        factors={},
        compilers=(str(labels["compiler"]),),
        devices=(str(labels["device"]),),
        batch_sizes=column.batch_sizes,
    )


def list_label_names(data: Data) -> list[str]:
    return ["workload", *list_factors(data), "device", "compiler"]


def _read_sweep(data: Data) -> Grid:
    """The sweep of a dataset, to build its networks again."""
    try:
        description = json.loads(data.attrs.get("sweep") or "null")
        if not isinstance(description, dict):
            raise MetricError("it names none")
        locate = Store(options.get_state_dir() / options.LAYOUT.artifacts).locate
        return Grid.from_json(description, locate=locate)
    except (NgbkitError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise MetricError(
            f"a capacity is measured with the networks of the sweep, and that of this dataset cannot be read: {error}. "
            "Use the dataset of one run."
        ) from None
