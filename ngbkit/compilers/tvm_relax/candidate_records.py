"""The result of each candidate as one line of JSON: durable once written, and readable after any crash."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ngbkit.user_text import parse_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The result of one candidate."""

    function: str  # hash of the function
    candidate: str  # hash of the candidate's code
    seconds: float | None  # of one call; None if it could not be built or run
    error: str
    schedule: Any  # TVM's JSON to reproduce the candidate; None if it failed
    spent_s: float  # tuning time of the whole subject so far


def read(path: Path) -> list[Record]:
    """Read the records of a file in order, up to a line that a killed process left unfinished."""
    return [Record(**fields) for _, fields in _read_lines(path)] if path.is_file() else []


def append(path: Path, records: Iterable[Record]) -> None:
    """Append records to a file and sync it to disk."""
    with path.open("a", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(asdict(record)) + "\n")
        file.flush()
        os.fsync(file.fileno())


def truncate_partial(path: Path) -> None:
    """Truncate a file before a line that a killed process left unfinished."""
    if not path.is_file():
        return
    complete = sum(length for length, _ in _read_lines(path))
    if complete != path.stat().st_size:
        with path.open("r+b") as file:
            file.truncate(complete)


def _read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the length in bytes and the fields of every complete line."""
    with path.open("rb") as file:
        for line in file:
            try:
                fields = parse_json(line)
            except ValueError:
                return
            if not line.endswith(b"\n"):
                return
            yield len(line), fields
