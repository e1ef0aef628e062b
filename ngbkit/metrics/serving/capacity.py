"""Capacity: the highest rate of requests that a network serves within a deadline, simulated from its stored samples."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ngbkit.dataset.disturbance import settled
from ngbkit.dataset.long_form import list_labels
from ngbkit.dataset.storage import Data
from ngbkit.errors import UnknownNameError
from ngbkit.metrics import quantiles
from ngbkit.metrics.conclusions import describe_disturbance
from ngbkit.metrics.estimate import LEVEL, UNBOUNDED, UNSETTLED, Estimate
from ngbkit.metrics.rendering import to_html, to_text
from ngbkit.metrics.serving import queueing
from ngbkit.metrics.serving.load_test import LoadTest
from ngbkit.metrics.serving.queueing import Server
from ngbkit.metrics.serving.service import (
    Column,
    Service,
    format_seconds,
    list_columns,
    list_label_names,
    parse_service,
)
from ngbkit.metrics.unchecked import describe_unchecked
from ngbkit.sweep.json_values import to_json_value
from ngbkit.sweep.records import MEASURED

if TYPE_CHECKING:
    import pandas as pd

# Networks and compilers that a note names one by one.
_MOST = 8
_COLUMNS = (
    *("capacity", "ci_low", "ci_high", "settled", "monte_carlo", "unloaded", "throughput", "requests_per_call"),
    *("busy", "batch_sizes", "samples", "calls_per_sample", "reason"),
)
# The fewest rounds whose resamples say anything: see `ngbkit.device.timing.intervals.has_enough_rounds`.
_FEWEST_ROUNDS = 6


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Capacities:
    """The capacity of each network with each compiler, as a notebook displays it: ``ds.ngb.capacity("50ms")``.

    Parameters
    ----------
    frame
        One row per ``workload, <factors>, device, compiler``: ``capacity``, requests/s, 0 where not even an idle server
        keeps the deadline, and NaN without a measurement, for the `reason`; ``ci_low``, ``ci_high``, ``settled``;
        ``monte_carlo``, the standard deviation, relative, of the random arrivals alone; ``unloaded``, the latency of
        that quantile on an idle server, and ``throughput``, of full batches without a pause, requests/s;
        ``requests_per_call`` and ``busy``, a share, at the capacity; ``batch_sizes``; ``samples`` of the batch size
        that has the fewest; ``calls_per_sample``, the most of any.
    service
        The deadline, and the rest of the question.
    notes
        What a reader must know, one sentence each.
    tests
        The measured capacities of those rows that were checked by a real load: see `ngbkit.capacity`.
    """

    frame: pd.DataFrame
    service: Service
    notes: tuple[str, ...] = ()
    tests: tuple[LoadTest, ...] = field(default=())

    def list_rows(self) -> list[dict[str, Any]]:
        """The rows of `frame`, by column."""
        return [{str(name): value for name, value in row.items()} for row in self.frame.to_dict("records")]

    def build_server(self, data: Data, row: Mapping[str, Any]) -> tuple[dict[str, Any], Server]:
        """The labels of one of the rows, and the server that was simulated, of the dataset behind them."""
        labels = {name: row[name] for name in row if name not in _COLUMNS and row[name] == row[name]}
        sizes = tuple(int(size) for size in row["batch_sizes"].split(","))
        (column,) = list_columns(data, replace(self.service, batch_sizes=sizes), labels)
        assert column.server is not None
        return labels, column.server

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `capacity` that asked for these: all but the selection."""
        return {name: value for name, value in asdict(self.service).items() if value is not None}

    def to_frame(self) -> pd.DataFrame:
        """The table that is displayed: a column per compiler, or of simulated and measured rates after a check."""
        import pandas as pd

        rows = [_to_row(row) for row in self.list_rows()]
        labels = [str(name) for name in self.frame if name not in (*_COLUMNS, "compiler")]
        keys = [name for name in labels if name != "device" or self.frame["device"].nunique() > 1]
        if self.tests:
            tests = {_key(test.labels): test for test in self.tests}
            checked = [
                {**{key: row[key] for key in (*keys, "compiler")}, "simulated": row["cell"], **_compare(row, tests)}
                for row in rows
            ]
            table = pd.DataFrame(checked, dtype=object).set_index([*keys, "compiler"])
        else:
            compilers = list(dict.fromkeys(row["compiler"] for row in rows))
            cells: dict[tuple[Any, ...], dict[str, Any]] = {}
            for row in rows:
                cells.setdefault(tuple(row[key] for key in keys), dict.fromkeys(compilers, ""))[row["compiler"]] = row[
                    "cell"
                ]
            table = pd.DataFrame(
                [{**dict(zip(keys, values, strict=True)), **line} for values, line in cells.items()], dtype=object
            )
            table = table.set_index(keys)
        table.attrs["title"] = f"capacity (requests/s), {self.service.text}"
        table.attrs["notes"] = [
            *self._explain_marks(),
            *self.notes,
            *(note for test in self.tests for note in test.notes),
        ]
        return table

    def to_json(self) -> dict[str, Any]:
        """All of it as plain JSON."""
        tests = [asdict(test) for test in self.tests]
        rows = self.frame.to_dict(orient="records")
        answer = {"service": asdict(self.service), "capacities": rows, "notes": list(self.notes), "checks": tests}
        plain: dict[str, Any] = to_json_value(answer)
        return plain

    def _explain_marks(self) -> Iterator[str]:
        frame = self.frame
        present = frame["capacity"] > 0
        if (present & ~frame["settled"].astype(bool)).any():
            yield f"{UNSETTLED} not settled: too few rounds of its batch sizes were undisturbed, or not checked"
        if self.service.ci is not None and (present & frame["ci_low"].isna()).any():
            yield f"{UNBOUNDED} without an interval: too few rounds; measure more repeats (-r)"

    def _repr_html_(self) -> str:
        return to_html(self.to_frame())

    def __repr__(self) -> str:
        return to_text(self.to_frame())


def capacity(
    data: Data,
    deadline: str | float,
    *,
    quantile: float = 0.99,
    max_delay: str | float | None = None,
    batch_sizes: int | Collection[int] | None = None,
    ci: float | None = LEVEL,
    seed: int = 0,
    **select: Any,
) -> Capacities:
    """The highest rate of requests whose latency keeps a deadline, by simulation of a server from stored samples.

    Requests arrive at random (a Poisson process), as in the server scenario of MLPerf's LoadGen, each with one sample.
    The server makes one call at a time. When it is free it takes the requests that wait, at most as many as its largest
    batch size, and runs them at the smallest measured batch size that holds them (the rest of the batch is padding). A
    latency is of waiting and call. The capacity is the rate up to which every lower one keeps the deadline too.

    A call takes as long as a stored sample: rounds are drawn at random, and the samples of a round follow one another
    as they were measured. So what slows a machine for longer than a round is assumed to slow any round with the same
    probability. Inputs are assumed to be in place, as in the timed calls: the copy of requests into a batch is not
    counted.

    Parameters
    ----------
    data
        A dataset with samples, or a tree.
    deadline
        A time such as ``"50ms"``, or seconds.
    quantile
        The share of requests that keeps it.
    max_delay
        How long the first request waits for a fuller batch on an idle server. Default: not at all.
    batch_sizes
        The batch sizes of the server. Default: those measured sizes, from the smallest on, with which it serves most.
    ci
        The probability that the interval covers: it has a bootstrap over rounds, and the allowance for processes that
        other metrics have (`ngbkit.metrics.draws`); None for no interval.
    seed
        Of arrivals and replicates.
    **select
        By dim, the label or the labels to simulate: ``compiler="openvino"``.

    Raises
    ------
    UsageError, UnknownNameError
        An argument is invalid.
    MetricError
        The dataset has no samples.

    Examples
    --------
    >>> ds.ngb.capacity("50ms", quantile=0.95)  # doctest: +SKIP
    """
    import pandas as pd

    service = parse_service(deadline, quantile, max_delay, batch_sizes, ci, seed)
    rows = [{**column.labels, **_simulate(column, service)} for column in list_columns(data, service, select)]
    frame = pd.DataFrame(rows, columns=[*list_label_names(data), *_COLUMNS])
    return Capacities(frame=frame, service=service, notes=tuple(_list_notes(data, frame, service)))


def _simulate(simulated: Column, service: Service) -> dict[str, Any]:
    column, server = simulated.part.squeeze(list(simulated.labels), drop=True), simulated.server
    is_settled = bool(settled(column).all()) if {"latency", "round"} <= set(column.variables) else True
    row = dict.fromkeys(_COLUMNS, math.nan) | {"settled": is_settled, "batch_sizes": "", "samples": 0, "reason": ""}
    if server is None:
        return row | {"reason": _explain_missing(column, service)}
    blocks = column["calls_per_sample"].max() if "calls_per_sample" in column else math.nan
    counts = [sum(map(len, rounds)) for rounds in server.rounds]
    unloaded = server.compute_unloaded(service.quantile)
    row |= {
        "unloaded": unloaded,
        "throughput": server.throughput,
        "batch_sizes": ",".join(map(str, server.sizes)),
        "samples": min(counts),
        "calls_per_sample": float(blocks),
    }
    overlap = _read_overlap(column)
    if overlap > 1:
        return row | {"reason": f"a call has {overlap} inferences in flight: its samples are no latencies"}
    result = queueing.find_capacity(server, service.deadline, service.quantile, service.seed)
    row |= {"capacity": result.rate, "monte_carlo": result.monte_carlo}
    if result.rate <= 0:
        late = f"{service.percentile} on an idle server is {format_seconds(unloaded)} at batch {server.sizes[0]}"
        late += f", {format_seconds(server.max_delay)} of them the wait for a batch" if server.max_delay else ""
        return row | {"ci_low": 0.0, "ci_high": 0.0, "reason": late}
    row |= {"requests_per_call": result.requests_per_call, "busy": result.busy}
    if service.ci is None or min(map(len, server.rounds)) < _FEWEST_ROUNDS:
        return row
    deviation, share = queueing.estimate_deviation(
        server, result, service.deadline, service.quantile, simulated.process_sd, service.seed
    )
    factor = math.exp(NormalDist().inv_cdf(0.5 + service.ci / 2) * math.hypot(deviation, result.monte_carlo))
    low = 0.0 if share > (1 - service.ci) / 2 else result.rate / factor
    return row | {"ci_low": low, "ci_high": result.rate * factor}


def _explain_missing(column: xr.Dataset, service: Service) -> str:
    measured = [int(size) for size in list_labels(column, "batch_size")]
    if service.batch_sizes is not None and not {*measured} & {*service.batch_sizes}:
        raise UnknownNameError("batch size", ",".join(map(str, service.batch_sizes)), map(str, measured))
    statuses = dict.fromkeys(map(str, np.ravel(column["status"].values))) if "status" in column else {}
    return ", ".join(status for status in statuses if status and status not in MEASURED) or "no samples"


def _read_overlap(column: xr.Dataset) -> int:
    texts = np.ravel(column["contract"].values).tolist() if "contract" in column else []
    contracts = [json.loads(text) for text in map(str, texts) if text.startswith("{")]
    return max((int(contract.get("overlap", 1)) for contract in contracts), default=1)


def _list_notes(data: Data, frame: pd.DataFrame, service: Service) -> Iterator[str]:
    """What a reader of the capacities must know."""
    if state := describe_disturbance(data):
        yield state
    yield from describe_unchecked(data)
    waiting = f" or its first request has waited {format_seconds(service.max_delay)}" if service.max_delay else ""
    yield (
        "simulated: Poisson arrivals, one call at a time; a free server takes what waits"
        + (f" once a batch is full{waiting}," if service.max_delay else ",")
        + " at the smallest measured batch size that holds it"
    )
    yield (
        "samples are of calls in a row: the simulation leaves out that calls take longer after a pause, and the "
        "server's own work; on a machine with two cores, measured rates were 0.49 to 0.98 of simulated ones, and "
        "0.77 to 1.39 of those calibrated by --check, which measures them"
    )
    if service.batch_sizes is None and (limits := _describe_limits(frame)):
        yield f"largest batch, with which each serves most: {limits}"
    for names, row in _group_reasons(frame):
        yield f"{names}: {row}"
    simulated = frame[frame["capacity"] > 0]
    fewest = int(simulated["samples"].min()) if len(simulated) else 0
    needed = quantiles.count_shown_samples(service.quantile)
    if 0 < fewest < needed:
        yield (
            f"{service.percentile} of {fewest} samples is hardly known: a call in {needed} may be slower than any of "
            f"them, and the capacity lower; measure -r {needed} or more, or ask for --quantile 0.9"
        )
    blocks = simulated["calls_per_sample"].max() if len(simulated) else math.nan
    if blocks > 1:
        yield (
            f"short calls were timed in blocks of up to {blocks:.0f}, whose mean hides a slow call: the capacity may "
            "be lower (--check measures it)"
        )


def _describe_limits(frame: pd.DataFrame) -> str:
    """The largest batch of each server; the range of many."""
    served = [row for row in frame.to_dict("records") if row["batch_sizes"]]
    largest = [int(row["batch_sizes"].rpartition(",")[2]) for row in served]
    if len(served) > _MOST:
        return f"{min(largest)} to {max(largest)}"
    names = [f"{row['workload']} {row['compiler']}" for row in served]
    return ", ".join(f"{name} {size}" for name, size in zip(names, largest, strict=True))


def _group_reasons(frame: pd.DataFrame) -> Iterator[tuple[str, str]]:
    labels = [name for name in frame if name not in _COLUMNS]
    for row in frame[frame["reason"] != ""].to_dict("records"):
        names = [str(row[name]) for name in labels if row[name] == row[name] and name != "device"]
        yield " ".join(names), row["reason"]


def _to_row(row: Mapping[str, Any]) -> dict[str, Any]:
    value = row["capacity"]
    cell: Any = Estimate(value, row["ci_low"], row["ci_high"], row["settled"])
    if math.isnan(value):
        cell = row["reason"].partition(",")[0] if "in flight" not in row["reason"] else "–"
    elif value == 0:
        cell = 0.0
    return {**row, "cell": cell}


def _key(labels: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((name, value) for name, value in labels.items() if value == value))


def _compare(row: Mapping[str, Any], tests: Mapping[tuple[tuple[str, Any], ...], LoadTest]) -> dict[str, Any]:
    """The columns of a check: the calibrated and the measured rate, and their difference."""
    labels = {name: value for name, value in row.items() if name not in (*_COLUMNS, "cell")}
    test = tests.get(_key(labels))
    if test is None:
        return {"calibrated": "", "measured": "–", "difference": "", "kept at": "", "missed at": ""}
    expected = test.calibrated or test.simulated
    value, low, high = (100 * (rate / expected - 1) for rate in (test.rate, test.low, test.high))
    percent = Estimate(value, low, high)
    return {
        "calibrated": format_rate(test.calibrated),
        "measured": Estimate(test.rate, test.low, test.high, test.settled),
        "difference": f"{percent} %" if percent.bounded else "–",
        "kept at": format_rate(test.highest_met),
        "missed at": format_rate(test.lowest_missed),
    }


def format_rate(rate: float | None) -> str:
    """Format a rate with three digits."""
    return "–" if rate is None or not math.isfinite(rate) else f"{rate:.3g}"


def with_tests(capacities: Capacities, tests: Collection[LoadTest]) -> Capacities:
    """The capacities with what real load measured."""
    return replace(capacities, tests=tuple(tests))
