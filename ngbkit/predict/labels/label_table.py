"""Labels in a table, a CSV or a DataFrame: a network in each row, and milliseconds, in the headers that people use."""

from __future__ import annotations

import csv
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ngbkit.errors import UsageError
from ngbkit.predict.labels.measured_networks import LEAST_S, MOST_S, ImportedMeasurement
from ngbkit.predict.labels.rows import Runtime
from ngbkit.user_text import clean_line, join_names, parse_path

SUFFIXES = (".csv", ".tsv", ".txt")

# Headers in lower case, with "_" for spaces and dashes; the first that a table has counts.
_NETWORKS = ("file", "path", "onnx", "onnx_file", "network", "model", "workload", "architecture", "name")
_ROLES = {
    "compiler": ("runtime", "compiler", "backend", "framework", "engine"),
    "device": ("device", "hardware", "platform", "machine"),
    "family": ("family",),
    "parent": ("parent",),
    "batch_size": ("batch_size", "batch", "batchsize", "bs"),
}
_TIMES = frozenset(
    {
        *("", "latency", "time", "runtime", "duration", "inference", "inference_time", "run_time", "elapsed", "mean"),
        *("median", "measured", "mean_latency", "latency_mean", "median_latency", "latency_median", "avg_latency"),
    }
)
_ERRORS = frozenset({"error", "stderr", "std_error", "standard_error", "latency_error", "sem", "se"})
# Other statistics of the same samples: no runtime has such a name.
_STATISTICS = re.compile(r"(^|_)(std|stdev|sd|var|min|max|p\d+|q\d+|iqr|ci|low|high|compile|load)(_|$)")
_UNITS = {
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("us", "µs", "μs", "usec", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nanosecond", "nanoseconds"), 1e-9),
}
_PERCENT = ("percent", "pct", "%")
_WITH_UNIT = re.compile(
    rf"(?:(.*?)[\s_.:\-]*(?:[\s_.:\-]|(?=[\[(])))?[\[(]?({'|'.join([*_UNITS, *_PERCENT])})[\])]?", re.I
)
_EMPTY = frozenset({"", "-", "nan", "na", "n/a", "none", "null"})
_LISTED = 5
_EXPECTED = (
    "expected a column 'file' or 'network', and 'milliseconds', or a column for each runtime such as 'onnxruntime_ms'"
)


_Row = tuple[str, list[Any]]
"""The place of a row, and its cells."""


@dataclass(slots=True)
class _Columns:
    """The index of each column by what it means."""

    network: int = -1
    times: dict[int, tuple[str, float]] = field(default_factory=dict)  # the runtime, "" for none, and the unit
    error: tuple[int, float] | None = None  # the unit, or 0 for a share and -1 for a percentage
    roles: dict[str, int] = field(default_factory=dict)
    others: dict[int, str] = field(default_factory=dict)


def is_table(networks: Any) -> bool:
    """Return whether something is a DataFrame, or the path of a table by its name."""
    if isinstance(networks, (str, Path)):
        return Path(networks).suffix.lower() in SUFFIXES
    return hasattr(networks, "columns") and hasattr(networks, "to_dict")


def read(table: Any, default: Runtime, batch_size: int | None = None) -> list[ImportedMeasurement]:
    """Read the measurements of a DataFrame or a file; `default` is the runtime of rows that name none."""
    if isinstance(table, (str, Path)):
        path = parse_path(table)
        names, lines = _read_file(path)
        return _parse_rows(path.name, names, lines, default, batch_size, path.parent)
    header = [str(name) for name in table.columns]
    cells = zip(table.index, table.itertuples(index=False), strict=True)
    rows = [(f"row {index}", list(values)) for index, values in cells]
    return _parse_rows("the table", header, rows, default, batch_size, None)


def _read_file(path: Path) -> tuple[list[str], Iterator[_Row]]:
    if not path.is_file():
        raise UsageError(f"there is no file {path}; expected a CSV: {_EXPECTED}.")
    with _translate_errors(path), path.open(encoding="utf-8-sig") as file:
        first = next((line for line in file if line.strip() and not line.startswith("#")), "")
    rows = _iterate_rows(path, max(",;\t", key=first.count))
    header, first_row = next(rows, None), next(rows, None)
    if header is None or first_row is None:
        raise UsageError(f"{path} holds no rows; {_EXPECTED}, and a row for each measurement.")
    return header[1], chain([first_row], rows)


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    """Raise the error that says why a file cannot be read."""
    try:
        yield
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a text in UTF-8; expected a CSV. Export the table as CSV (UTF-8).") from None
    except (OSError, csv.Error) as error:
        raise UsageError(f"{path} cannot be read as CSV: {error}. Export it again.") from error


def _iterate_rows(path: Path, delimiter: str) -> Iterator[_Row]:
    """Yield the rows that are not empty, the header first: a table may have millions."""
    with _translate_errors(path), path.open(encoding="utf-8-sig") as file:
        reader = csv.reader(file, delimiter=delimiter)
        for row in reader:
            cells = [cell.strip() for cell in row]
            if any(cells) and not row[0].startswith("#"):
                if delimiter == ";":  # the decimal separator is then a comma, or the cells have none
                    cells = [re.sub(r"^(-?\d+),(\d+)$", r"\1.\2", cell) for cell in cells]
                yield f"line {reader.line_num}", cells


def _parse_rows(
    title: str,
    header: Sequence[str],
    rows: Iterable[_Row],
    default: Runtime,
    batch_size: int | None,
    folder: Path | None,
) -> list[ImportedMeasurement]:
    columns = _find_columns(title, header)
    measurements: list[ImportedMeasurement] = []
    faults: list[str] = []
    for place, row in rows:
        if len(row) != len(header):
            faults.append(f"{place}: got {len(row)} cells; expected {len(header)}")
            continue
        try:
            measurement = _parse_row(f"{title}, {place}", header, row, columns, default, batch_size, folder)
        except ValueError as error:
            faults.append(f"{place}, {error}")
        else:
            measurements.append(measurement)
    if faults:
        listed = join_names(faults, "; ", most=_LISTED)
        raise UsageError(f"invalid cells of {title}: {listed}. Correct or remove them.")
    return measurements


def _find_columns(title: str, header: Sequence[str]) -> _Columns:
    names = [_normalise(name) for name in header]
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise UsageError(f"invalid columns of {title}: got {', '.join(twice)} twice; expected each once. Rename one.")
    columns = _Columns()
    columns.network = next((names.index(name) for name in _NETWORKS if name in names), -1)
    for role, aliases in _ROLES.items():
        index = next((names.index(name) for name in aliases if name in names), None)
        if index is not None:
            columns.roles[role] = index
    for index, name in enumerate(header):
        if index == columns.network or index in columns.roles.values():
            continue
        _find_meaning(columns, index, name)
    plain = sorted({names[index] for index in columns.others} & (_TIMES - {""}))
    if columns.network < 0 or not columns.times:
        missing = "network" if columns.network < 0 else "latency"
        unit = f" The column '{plain[0]}' has no unit: call it '{plain[0]}_ms' or '{plain[0]}_s'." if plain else ""
        listed = ", ".join(repr(str(name)) for name in header)
        raise UsageError(f"no column of a {missing} in {title}: got {listed}; {_EXPECTED}.{unit}")
    runtimes = [runtime for runtime, _ in columns.times.values()]
    if len(set(runtimes)) < len(runtimes) or (len(runtimes) > 1 and "" in runtimes):
        listed = ", ".join(repr(header[index]) for index in columns.times)
        raise UsageError(f"ambiguous latencies of {title}: got the columns {listed}; {_EXPECTED}. Remove the others.")
    if columns.error and len(columns.times) > 1:
        raise UsageError(
            f"ambiguous column {header[columns.error[0]]!r} of {title}, beside {len(columns.times)} runtimes; "
            "expected a row for each network and runtime, with a column 'runtime'."
        )
    return columns


def _find_meaning(columns: _Columns, index: int, name: str) -> None:
    match = _WITH_UNIT.fullmatch(name.strip())
    stem, unit = (match[1] or "", match[2].lower()) if match else (name, "")
    plain = _normalise(stem)
    if plain in _ERRORS:
        columns.error = (index, -1.0 if unit in _PERCENT else _UNITS.get(unit, 0.0))
    elif unit in _UNITS and plain in _TIMES:
        columns.times[index] = ("", _UNITS[unit])
    elif unit in _UNITS and not _STATISTICS.search(plain):
        columns.times[index] = (clean_line(stem.strip()), _UNITS[unit])
    else:
        columns.others[index] = plain


def _parse_row(
    place: str,
    header: Sequence[str],
    row: Sequence[Any],
    columns: _Columns,
    default: Runtime,
    batch_size: int | None,
    folder: Path | None,
) -> ImportedMeasurement:
    """Parse a row; `ValueError`: a cell is invalid."""
    texts = {role: _to_text(row[index]) for role, index in columns.roles.items()}
    network = row[columns.network] if folder is None else _to_text(row[columns.network])
    if _is_empty(network):
        raise ValueError(f"column {header[columns.network]!r}: got none; expected a file or the name of a network")
    seconds, errors = {}, {}
    for index, (name, unit) in columns.times.items():
        runtime = _find_runtime(name or texts.get("compiler") or default[1], texts.get("device") or "", default[0])
        value = unit * _parse_number(row[index], header[index])
        if not (math.isnan(value) or LEAST_S <= value <= MOST_S):
            raise ValueError(
                f"column {header[index]!r}: got {row[index]!r}; expected a number above 0, from {LEAST_S:g} to "
                f"{MOST_S:g} seconds, or an empty cell"
            )
        seconds[runtime] = value
        if columns.error:
            error_index, scale = columns.error
            number = _parse_number(row[error_index], header[error_index])
            error = number if scale == 0 else number / 100 if scale < 0 else scale * number / value
            if error < 0 or math.isinf(error):
                raise ValueError(f"column {header[error_index]!r}: got {row[error_index]!r}; expected a number >= 0")
            errors[runtime] = error
    size = _parse_number(row[columns.roles["batch_size"]], "batch_size") if "batch_size" in columns.roles else math.nan
    if not math.isnan(size) and (size < 1 or size != int(size)):
        raise ValueError(f"column {header[columns.roles['batch_size']]!r}: got {size:g}; expected an integer >= 1")
    # Of millions of rows, most share these.
    return ImportedMeasurement(
        network=network,
        seconds=seconds,
        errors=errors or _NOTHING,
        batch_size=batch_size if math.isnan(size) else int(size),
        factors=dict(_parse_factors(row, columns.others)) or _NOTHING,
        family=texts.get("family", ""),
        parent=texts.get("parent", ""),
        place=place,
        folder=folder,
    )


_NOTHING: Mapping[Any, Any] = MappingProxyType({})


@lru_cache(maxsize=1024)
def _find_runtime(name: str, device: str, default: str) -> Runtime:
    """Return a device and a compiler; a name such as "tvm on pi" has both."""
    compiler, _, place = name.partition(" on ")
    return device or place.strip() or default, compiler.strip()


def _parse_factors(row: Sequence[Any], others: Mapping[int, str]) -> Iterator[tuple[str, float]]:
    """Yield all other numbers: a network takes the numbers of the factors that it has."""
    for index, name in others.items():
        try:
            value = float(row[index])
        except (TypeError, ValueError):
            continue
        if math.isfinite(value):
            yield name, int(value) if value == int(value) else value


def _parse_number(cell: Any, column: str) -> float:
    try:
        return float(cell)  # "nan" is an empty cell too
    except (TypeError, ValueError):
        if _is_empty(cell):
            return math.nan
        raise ValueError(f"column {column!r}: got {cell!r}; expected a number, or an empty cell") from None


def _is_empty(cell: Any) -> bool:
    return cell is None or (isinstance(cell, float) and math.isnan(cell)) or _to_text(cell).lower() in _EMPTY


def _to_text(cell: Any) -> str:
    if isinstance(cell, str):
        return _clean_text(cell)
    return "" if cell is None or (isinstance(cell, float) and math.isnan(cell)) else clean_line(str(cell).strip())


# The rows of a table repeat the names of its networks and runtimes.
@lru_cache(maxsize=4096)
def _clean_text(cell: str) -> str:
    return sys.intern(clean_line(cell.strip()))


def _normalise(name: Any) -> str:
    return "_".join(re.split(r"[\s_\-]+", str(name).strip().lower()))
