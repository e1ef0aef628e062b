"""The capacities of networks: what a server must keep, the columns that it runs, and the answers of its tests."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ngbkit import validation
from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import list_factors, to_frame
from ngbkit.dataset.selection import select_rows
from ngbkit.dataset.storage import Data
from ngbkit.device.serving.load import QUANTILES, RESOLUTION, Load, LoadTest, find_bracket
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.metrics.estimate import INCONCLUSIVE
from ngbkit.metrics.rendering import to_texts
from ngbkit.metrics.unchecked import describe_unchecked
from ngbkit.report import Report, Reported
from ngbkit.sweep.conversion import to_batch_sizes
from ngbkit.sweep.json_values import to_json_value
from ngbkit.sweep.records import MEASURED
from ngbkit.user_text import format_seconds, parse_duration
from ngbkit.validation import Positive

if TYPE_CHECKING:
    import pandas as pd

SECONDS = 10.0
"""The shortest duration of a test; tests of MLPerf's submissions take 600 s."""
_COLUMNS = (
    *("capacity", "lowest_invalid", "conclusive", "latency", "requests_per_call", "busy", "tests", "contended"),
    *("throughput", "batch_sizes", "measured_at", "reason"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The requirements of a server: the deadline of a share of its requests, in seconds, and its batch sizes."""

    deadline: float
    quantile: float
    batch_sizes: tuple[int, ...] | None  # of the server; None for every measured one whose calls keep the deadline
    seconds: float  # the shortest duration of a test
    seed: int  # of the times of requests

    def build_load(self, limit: float) -> Load:
        """Build the load of a server that serves at most `limit` requests per second."""
        shared = {name: getattr(self, name) for name in ("deadline", "quantile", "seconds", "seed")}
        return Load(**shared, limit=limit)

    @property
    def text(self) -> str:
        """The condition in words: ``p99 within 50 ms``."""
        return f"p{100 * self.quantile:g} within {format_seconds(self.deadline)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedColumn:
    """A network with one compiler on a device: its labels, and its server, or why there is none."""

    labels: Mapping[str, Any]
    batch_sizes: tuple[int, ...] = ()
    limit: float = math.nan  # the requests per second of full batches in a row: no higher rate can be served
    reason: str = ""
    is_late: bool = False  # no rate keeps the deadline, and no measurement is necessary


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

    names = ["workload", *list_factors(data), "device", "compiler"]
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
    contracts = [json.loads(text) for trial in trials if (text := str(trial["contract"])).startswith("{")]
    overlap = max((int(contract.get("overlap", 1)) for contract in contracts), default=1)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacitySearch:
    """The tests that answer the question for a capacity, and the time at which they began."""

    started_at: Positive
    tests: tuple[LoadTest, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Capacities(Reported):
    """The capacity of each network with each compiler, as a notebook displays it: ``ngbkit.capacity(ds, "50ms")``.

    `frame` has one row per ``workload, <factors>, device, compiler``: ``capacity``, requests/s, the highest rate whose
    tests are valid, 0 where none is, and NaN without a measurement, for the `reason`; ``lowest_invalid``, the lowest
    rate above it whose tests are not; ``conclusive``, whether the search ended with both near each other, mostly
    uncontended; ``latency``, of that quantile in seconds, ``requests_per_call`` and ``busy``, a share, at the
    capacity; ``tests`` and those ``contended`` by other work; ``throughput`` of full batches in a row, requests/s;
    ``batch_sizes``; ``measured_at``. `tests` has one row per test of LoadGen, with the same labels: ``rate``,
    ``valid``, ``requests``, ``late``, ``latency``, ``mean_latency``, ``completed_per_s``, ``calls``, ``busy``,
    ``contended``, ``loadgen``, its release.
    """

    frame: pd.DataFrame
    tests: pd.DataFrame
    service: Service
    notes: tuple[str, ...] = ()  # what a reader must know, one sentence each

    def to_frame(self) -> pd.DataFrame:
        """The table that is displayed: by compiler, the highest valid and the lowest invalid rate of each network."""
        labels = [str(name) for name in self.frame if name not in (*_COLUMNS, "compiler")]
        keys = [name for name in labels if name != "device" or self.frame["device"].nunique() > 1]
        cells = self.frame.assign(cell=[_format_cell(row) for row in self.frame.to_dict("records")])
        order = list(dict.fromkeys(cells["compiler"]))
        lines: dict[tuple[Any, ...], dict[str, str]] = {}
        for row in cells.to_dict("records"):
            line = lines.setdefault(tuple(row[key] for key in keys), dict.fromkeys(order, ""))
            line[row["compiler"]] = row["cell"]
        import pandas as pd

        table = pd.DataFrame([{**dict(zip(keys, names, strict=True)), **line} for names, line in lines.items()])
        table = table.set_index(keys)
        table.attrs["title"] = f"capacity (requests/s), {self.service.text}"
        return table

    def to_report(self) -> Report:
        """Build the table with its notes."""
        return Report(frames=[to_texts(self.to_frame())], notes=self.notes)

    def to_json(self) -> dict[str, Any]:
        """All of it as plain JSON."""
        frames = {"capacities": self.frame, "tests": self.tests}
        rows = {name: to_json_value(frame.to_dict("records")) for name, frame in frames.items()}
        return {"service": asdict(self.service), **rows, "notes": list(self.notes)}


def build_capacities(
    data: Data, service: Service, results: Collection[tuple[ServedColumn, CapacitySearch | None]]
) -> Capacities:
    """Build the capacities of columns from the search of each, or None where there is none."""
    import pandas as pd

    rows = [{**column.labels, **_build_row(column, search)} for column, search in results]
    searched = [(column, search) for column, search in results if search is not None]
    tests = [{**column.labels, **asdict(test)} for column, search in searched for test in search.tests]
    names = ["workload", *list_factors(data), "device", "compiler"]
    frame = pd.DataFrame(rows, columns=[*names, *_COLUMNS])
    return Capacities(
        frame=frame,
        tests=pd.DataFrame(tests, columns=[*names, *(field.name for field in fields(LoadTest))]),
        service=service,
        notes=tuple(_list_notes(data, frame, service, [test for _, search in searched for test in search.tests])),
    )


def _build_row(column: ServedColumn, search: CapacitySearch | None) -> dict[str, Any]:
    row = dict.fromkeys(_COLUMNS, math.nan) | {
        "conclusive": False,
        "tests": 0,
        "contended": 0,
        "throughput": column.limit,
        "batch_sizes": ",".join(map(str, column.batch_sizes)),
        "measured_at": "",
        "reason": column.reason,
    }
    if column.is_late:
        return row | {"capacity": 0.0, "conclusive": True}
    if search is None:
        return row
    low, high = find_bracket(search.tests)
    ends = [test.contended for test in search.tests if test.rate in (low, high)]
    best = [test for test in search.tests if test.rate == low and test.valid]
    is_narrow = math.isfinite(high) and (not low or high <= low * RESOLUTION)
    return row | {
        "capacity": low,
        "lowest_invalid": high if math.isfinite(high) else math.nan,
        "conclusive": is_narrow and 2 * sum(ends) < len(ends),
        "latency": max((test.latency for test in best), default=math.nan),
        "requests_per_call": sum(test.requests for test in best) / max(1, sum(test.calls for test in best)),
        "busy": max((test.busy for test in best), default=math.nan),
        "tests": len(search.tests),
        "contended": sum(test.contended for test in search.tests),
        "measured_at": datetime.fromtimestamp(search.started_at).isoformat(" ", "minutes"),
    }


def _format_cell(row: Mapping[Any, Any]) -> str:
    """Format the highest valid and the lowest invalid rate of a row, or the reason why it has none."""
    if math.isnan(row["capacity"]):
        return str(row["reason"]).partition(",")[0]
    if not row["capacity"]:
        high = row["lowest_invalid"]
        return "0" if math.isnan(high) else f"under {high:.3g}{'' if row['conclusive'] else f' {INCONCLUSIVE}'}"
    high = " or more" if math.isnan(row["lowest_invalid"]) else f" to {row['lowest_invalid']:.3g}"
    return f"{row['capacity']:.3g}{high}{'' if row['conclusive'] else f' {INCONCLUSIVE}'}"


def _list_notes(data: Data, frame: pd.DataFrame, service: Service, tests: Sequence[LoadTest]) -> Iterator[str]:
    """List the remarks that a reader of the capacities must know."""
    yield from describe_unchecked(data)
    if tests:
        releases = ", ".join(dict.fromkeys(test.loadgen for test in tests))
        few = min(test.requests for test in tests)
        yield (
            f"MLPerf's LoadGen {releases}, Server scenario: the highest rate whose tests were valid, and the lowest "
            f"whose tests were not; tests of {service.seconds:g} s and {few} requests or more"
        )
        yield (
            "no result of MLPerf: its tests take 600 s and have real inputs; here inputs are in place, and a short "
            "test must be better than its quantile to be valid: a longer one (--seconds) may reach a higher rate"
        )
    if (frame["tests"].gt(0) & ~frame["conclusive"].astype(bool)).any():
        yield f"{INCONCLUSIVE} not conclusive: the search did not come to an end, or other work slowed its tests"
    if contended := int(frame["contended"].sum()):
        yield f"other work slowed {contended} of {len(tests)} tests"
    labels = [name for name in frame if name not in _COLUMNS]
    for row in frame[frame["reason"] != ""].to_dict("records"):
        names = [str(row[name]) for name in labels if row[name] == row[name] and name != "device"]
        yield f"{' '.join(names)}: {row['reason']}"
