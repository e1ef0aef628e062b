"""The index of what runs measured: which run has which network, by its content, on which device."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import astuple, dataclass
from pathlib import Path

from ngbkit.runs.folders import get_runs_dir

_NAME = "networks.sqlite"
# Another process that writes is done within milliseconds.
_WAIT_S = 2.0
_TABLE = """CREATE TABLE IF NOT EXISTS contents (
    digest TEXT, device TEXT, settings TEXT, network TEXT, run_id TEXT, started_at REAL,
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
    rows = list(map(astuple, contents))
    try:
        with _open() as connection, connection:
            connection.execute(_TABLE)
            connection.executemany("INSERT OR REPLACE INTO contents VALUES (?, ?, ?, ?, ?, ?)", rows)
    except (OSError, sqlite3.Error):
        return


def list_runs(digest: str, device: str) -> list[MeasuredContent]:
    """List the latest runs that measured a content on a device, the latest first."""
    query = "SELECT * FROM contents WHERE digest = ? AND device = ? ORDER BY started_at DESC LIMIT ?"
    try:
        with _open() as connection:
            return [MeasuredContent(*row) for row in connection.execute(query, (digest, device, _MOST_RUNS))]
    except (OSError, sqlite3.Error):  # there is none yet, or it is damaged
        return []


def list_digests(run_ids: Iterable[str]) -> dict[str, dict[str, str]]:
    """List the contents that each run measured, by the key of a network's facts."""
    digests: dict[str, dict[str, str]] = {run_id: {} for run_id in run_ids}
    query = f"SELECT run_id, network, digest FROM contents WHERE run_id IN ({','.join('?' * len(digests))})"
    with suppress(OSError, sqlite3.Error), _open() as connection:
        for run_id, network, digest in connection.execute(query, list(digests)):
            digests[run_id][network] = digest
    return digests


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
