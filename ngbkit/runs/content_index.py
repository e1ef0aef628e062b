"""The index of what runs measured: which run has which network, by its content, on which device."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from ngbkit.runs.folders import get_runs_dir
from ngbkit.sweep.journal_file import compute_checksum

_NAME = "networks.sqlite"
# Another process that writes is done within milliseconds.
_WAIT_S = 2.0
_TABLE = """CREATE TABLE IF NOT EXISTS measured (
    digest TEXT, device TEXT, settings TEXT, network TEXT, run_id TEXT, started_at REAL, checksum INTEGER,
    PRIMARY KEY (digest, device, run_id, network)
) WITHOUT ROWID"""
# A network that was measured more often than this has enough recent runs.
_MOST_RUNS = 12


@dataclass(frozen=True, slots=True)
class MeasuredContent:
    """A network that a run measures on a device, under settings of that device and of the environment."""

    digest: str
    device: str
    settings: str
    # The key of its facts: its name with its factors.
    network: str
    run_id: str
    # Seconds since the epoch.
    started_at: float


def add(contents: Iterable[MeasuredContent]) -> None:
    """Add what a run measures; without a writable folder nothing is found later, and nothing else is lost."""
    rows = [(*row, compute_checksum(row)) for row in map(astuple, contents)]
    with suppress(OSError, sqlite3.Error):
        try:
            _write(rows)
        except sqlite3.DatabaseError as error:
            if type(error) is sqlite3.DatabaseError:  # the file is damaged
                (get_runs_dir() / _NAME).unlink()
                _write(rows)


def _write(rows: Sequence[tuple[Any, ...]]) -> None:
    with _open() as connection, connection:
        connection.execute(_TABLE)
        connection.executemany("INSERT OR REPLACE INTO measured VALUES (?, ?, ?, ?, ?, ?, ?)", rows)


def list_runs(digest: str, device: str) -> list[MeasuredContent]:
    """List the latest runs that measured a content on a device, the latest first."""
    return list(_read("digest = ? AND device = ? ORDER BY started_at DESC LIMIT ?", digest, device, _MOST_RUNS))


def list_digests(run_ids: Iterable[str]) -> dict[str, dict[str, str]]:
    """List the contents that each run measured, by the key of a network's facts."""
    digests: dict[str, dict[str, str]] = {run_id: {} for run_id in run_ids}
    for row in _read(f"run_id IN ({','.join('?' * len(digests))})", *digests):
        digests[row.run_id][row.network] = row.digest
    return digests


def _read(condition: str, *values: Any) -> Iterator[MeasuredContent]:
    """Yield the rows that fulfil a condition and are as they were written."""
    try:
        with _open() as connection:
            rows = connection.execute(f"SELECT * FROM measured WHERE {condition}", values).fetchall()
    except (OSError, sqlite3.Error):  # there is none yet, or it is damaged
        return
    yield from (MeasuredContent(*row) for *row, checksum in rows if checksum == compute_checksum(tuple(row)))


@contextmanager
def _open() -> Iterator[sqlite3.Connection]:
    path = get_runs_dir() / _NAME
    _discard_damaged(path)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with closing(sqlite3.connect(path, timeout=_WAIT_S)) as connection:
        yield connection


def _discard_damaged(path: Path) -> None:
    """Remove a file that is no database: it is only an index."""
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError:
        return
    if head and head != b"SQLite format 3\0":
        path.unlink()
