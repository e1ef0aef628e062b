"""The capacities of networks: the tests that measured them, in files; as a table, in words, and as JSON."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit import options, validation
from ngbkit.dataset.storage import Data
from ngbkit.device.serving.load import RESOLUTION, LoadTest, find_bracket
from ngbkit.errors import JournalError
from ngbkit.files import write_atomically
from ngbkit.metrics.estimate import INCONCLUSIVE
from ngbkit.metrics.rendering import to_texts
from ngbkit.metrics.serving.service import ServedColumn, Service, build_question, list_label_names
from ngbkit.metrics.unchecked import describe_unchecked
from ngbkit.report import Report, Reported
from ngbkit.sweep.json_values import to_json_value
from ngbkit.user_text import parse_json
from ngbkit.validation import Positive

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = (
    *("capacity", "lowest_invalid", "conclusive", "latency", "requests_per_call", "busy", "tests", "contended"),
    *("throughput", "batch_sizes", "measured_at", "reason"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacitySearch:
    """The tests that answer the question for a capacity, and the time at which they began."""

    started_at: Positive
    tests: tuple[LoadTest, ...]

    def save(self, question: Mapping[str, Any]) -> None:
        """Write the search to the file of its question."""
        options.make_state_dir()
        with write_atomically(_locate(question)) as draft:
            draft.write_text(json.dumps({"question": question, **asdict(self)}))


def find_search(question: Mapping[str, Any]) -> CapacitySearch | None:
    """Find the search for the answer to a question, in the state folder; None without any."""
    file = _locate(question)
    # Earlier versions numbered the searches of a question.
    path = max(file.parent.glob(f"{file.stem}*.json"), key=lambda path: path.stat().st_mtime_ns, default=None)
    if path is None:
        return None
    try:
        stored = parse_json(path.read_text())
        search: CapacitySearch = validation.parse(
            CapacitySearch, {name: stored[name] for name in ("started_at", "tests")}
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise JournalError(f"invalid load tests in {path}: {error}. Move the file away, and measure again.") from None
    return search


def _locate(question: Mapping[str, Any]) -> Path:
    digest = hashlib.blake2b(json.dumps(question, sort_keys=True).encode(), digest_size=16).hexdigest()
    return options.get_state_dir() / options.LAYOUT.capacities / f"{digest}.json"


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Capacities(Reported):
    """The capacity of each network with each compiler, as a notebook displays it: ``ngbkit.capacity(ds, "50ms")``.

    Parameters
    ----------
    frame
        One row per ``workload, <factors>, device, compiler``: ``capacity``, requests/s, the highest rate whose tests
        are valid, 0 where none is, and NaN without a measurement, for the `reason`; ``lowest_invalid``, the lowest rate
        above it whose tests are not; ``conclusive``, whether the search ended with both near each other, mostly
        uncontended; ``latency``, of that quantile in seconds, ``requests_per_call`` and ``busy``, a share, at the
        capacity; ``tests`` and those ``contended`` by other work; ``throughput`` of full batches in a row, requests/s;
        ``batch_sizes``; ``measured_at``.
    tests
        One row per test of LoadGen, with the same labels: ``rate``, ``valid``, ``requests``, ``late``, ``latency``,
        ``mean_latency``, ``completed_per_s``, ``calls``, ``busy``, ``contended``, ``loadgen``, its release.
    service
        The deadline, and the rest of the question.
    notes
        What a reader must know, one sentence each.
    """

    frame: pd.DataFrame
    tests: pd.DataFrame
    service: Service
    notes: tuple[str, ...] = ()

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


def find_capacities(data: Data, service: Service, columns: Collection[ServedColumn]) -> Capacities:
    """Find the capacities of columns in the searches of the state folder; nothing is measured."""
    import pandas as pd

    results = [
        (column, find_search(build_question(data, column, service)) if column.batch_sizes else None)
        for column in columns
    ]
    rows = [{**column.labels, **_build_row(service, column, search)} for column, search in results]
    searched = [(column, search) for column, search in results if search is not None]
    tests = [{**column.labels, **asdict(test)} for column, search in searched for test in search.tests]
    names = list_label_names(data)
    frame = pd.DataFrame(rows, columns=[*names, *_COLUMNS])
    return Capacities(
        frame=frame,
        tests=pd.DataFrame(tests, columns=[*names, *(field.name for field in fields(LoadTest))]),
        service=service,
        notes=tuple(_list_notes(data, frame, service, [test for _, search in searched for test in search.tests])),
    )


def _build_row(service: Service, column: ServedColumn, search: CapacitySearch | None) -> dict[str, Any]:
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
        return row | {"reason": column.reason or "not measured"}
    low, high = find_bracket(search.tests)
    ends = [test.contended for test in search.tests if test.rate in (low, high)]
    best = [test for test in search.tests if test.rate == low and test.valid]
    is_ended = service.build_load(column.limit).choose_rate(search.tests) is None
    is_narrow = math.isfinite(high) and (not low or high <= low * RESOLUTION)
    return row | {
        "capacity": low,
        "lowest_invalid": high if math.isfinite(high) else math.nan,
        "conclusive": is_ended and is_narrow and 2 * sum(ends) < len(ends),
        "latency": max((test.latency for test in best), default=math.nan),
        "requests_per_call": sum(test.requests for test in best) / max(1, sum(test.calls for test in best)),
        "busy": max((test.busy for test in best), default=math.nan),
        "tests": len(search.tests),
        "contended": sum(test.contended for test in search.tests),
        "measured_at": datetime.fromtimestamp(search.started_at).isoformat(" ", "minutes"),
        "reason": "" if is_ended else "interrupted: the next call measures it again",
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
