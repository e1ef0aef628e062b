"""What became of each candidate, one line of JSON each: durable when it is written, and readable up to any crash."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A candidate that was tried.

    Parameters
    ----------
    function
        A hash of the function that it is a candidate for.
    candidate
        A hash of its code.
    seconds
        How long a call took; None where it could not be built or run.
    error
        Why not, or ``""``.
    schedule
        How to make it again, as TVM's JSON; None where it failed.
    spent_s
        How long all tuning of this subject had taken by then.
    """

    function: str
    candidate: str
    seconds: float | None
    error: str
    schedule: Any
    spent_s: float


def read(path: Path) -> list[Record]:
    """The records of that file, in their order; a line that a killed process left unfinished ends it."""
    return list(_records(path)) if path.is_file() else []


def append(path: Path, records: Iterable[Record]) -> None:
    """Add records to that file, and see to it that they are on the disk."""
    with path.open("a", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(asdict(record)) + "\n")
        file.flush()
        os.fsync(file.fileno())


def mend(path: Path) -> None:
    """Cut off what a killed process left unfinished at the end of that file."""
    if not path.is_file():
        return
    whole = sum(length for length, _ in _lines(path))
    if whole != path.stat().st_size:
        with path.open("r+b") as file:
            file.truncate(whole)


def _records(path: Path) -> Iterator[Record]:
    for _, found in _lines(path):
        yield Record(**found)


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The length in bytes and the meaning of every whole line."""
    with path.open("rb") as file:
        for line in file:
            try:
                found = json.loads(line)
            except ValueError:
                return
            if not line.endswith(b"\n"):
                return
            yield len(line), found
