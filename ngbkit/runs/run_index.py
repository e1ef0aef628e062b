"""The index of the summaries of all runs: an SQLite file beside their folders, which saves reading their journals.

A row is valid as long as the files of its run are as they were. Without the file, or with a damaged one, everything is
read from the runs themselves.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ngbkit.errors import NgbkitError
from ngbkit.runs.folders import INDEX, get_runs_dir, has_metadata, list_ids, load_metadata
from ngbkit.runs.run_context import RunContext
from ngbkit.runs.summary import INTERRUPTED, RUNNING, Summary, summarize
from ngbkit.sweep.journal_file import is_held

# A row of another version of ngbkit, with other fields, is not valid.
_FORMAT = zlib.crc32(repr([*Summary.__dataclass_fields__, *RunContext.__dataclass_fields__]).encode())
_COLUMNS = "id, created, stamp, summary, checksum"
# Files of a run by which a change of it is noticed.
_FILES = ("run.json", "journal.sqlite", "journal.sqlite-wal", "context.json")
# A file may change again within the resolution of its time.
_FRESH_S = 2.0
# Another process that writes the index is not waited for.
_LOCKED_S = 0.2
# The summaries that are computed before the index is saved: an interrupt loses no more.
_BATCH = 500


@dataclass(frozen=True, slots=True)
class _Entry:
    """The moment of a run, and its summary as JSON with the stamp of the files that it is of, if there is one."""

    created: float
    stamp: str = ""
    summary: str = ""

    def compute_checksum(self, run_id: str) -> int:
        return zlib.crc32("\0".join([run_id, repr(self.created), self.stamp, self.summary]).encode())


def summaries(report: Callable[[NgbkitError], object] = str) -> Iterator[Summary]:
    """Summarize every run of this user, the latest first; `report` receives the error of each that cannot be read.

    Only those that are iterated over are read.
    """
    path = get_runs_dir() / INDEX
    entries = _load(path)
    changes: dict[str, _Entry] = {}
    run_ids = list_ids()
    for run_id in run_ids:
        if run_id not in entries and has_metadata(run_id):
            try:
                created = float(load_metadata(path.with_name(run_id))["created"])  # as SQLite returns it
                changes[run_id] = entries[run_id] = _Entry(created)
            except NgbkitError as error:
                report(error)
    # By the moment, and not by the id, whose time a clock may have set back.
    ordered = sorted((run_id for run_id in run_ids if run_id in entries), key=lambda run_id: -entries[run_id].created)
    try:
        for run_id in ordered:
            try:
                stamp, entry = _compute_stamp(path.with_name(run_id)), entries[run_id]
                if stamp and stamp == entry.stamp:
                    summary = Summary.from_json(json.loads(entry.summary))
                else:
                    summary = summarize(path.with_name(run_id))
                    changes[run_id] = _Entry(summary.created, stamp, json.dumps(summary.to_json()))
            except NgbkitError as error:
                report(error)
                continue
            if len(changes) >= _BATCH:
                _save(path, changes, ())
                changes.clear()
            yield _complete(summary)
    finally:
        _save(path, changes, entries.keys() - run_ids)


def recall(run_ids: Collection[str]) -> dict[str, Summary]:
    """Return the summaries that the index has of runs, without reading a run: one may be older than its run."""
    entries = _load(get_runs_dir() / INDEX, run_ids)
    return {
        run_id: _complete(Summary.from_json(json.loads(entry.summary)))
        for run_id, entry in entries.items()
        if entry.summary
    }


def _complete(summary: Summary) -> Summary:
    """Complete a summary by whether a process still drives its run, which no file says."""
    if summary.state != RUNNING or is_held(get_runs_dir() / summary.id / "journal.sqlite"):
        return summary
    return replace(summary, state=INTERRUPTED)


def _compute_stamp(folder: Path) -> str:
    """Compute the stamp of the files of a run; empty if they may change without changing it."""
    parts, latest = [str(_FORMAT)], 0
    for name in _FILES:
        try:
            status = os.stat(f"{folder}/{name}")  # noqa: PTH116  ten thousand times
        except OSError:
            continue
        if status.st_size:  # a reader leaves an empty log
            latest = max(latest, status.st_mtime_ns)
            parts.append(f"{name} {status.st_mtime_ns} {status.st_size}")
    return "; ".join(parts) if latest < (time.time() - _FRESH_S) * 1e9 else ""


def _load(path: Path, run_ids: Collection[str] | None = None) -> dict[str, _Entry]:
    """Load the valid rows of the index, of some runs or of all; none of a file that is missing or damaged."""
    entries = {}
    selection = "" if run_ids is None else f"WHERE id IN ({','.join('?' * len(run_ids))})"
    with suppress(sqlite3.Error), closing(_connect(f"{path.as_uri()}?mode=ro")) as connection:
        rows = connection.execute(f"SELECT {_COLUMNS} FROM summaries {selection}", list(run_ids or ()))
        for run_id, created, stamp, summary, checksum in rows:
            entry = _Entry(created, stamp, summary)
            with suppress(TypeError, UnicodeError):
                if entry.compute_checksum(run_id) == checksum:
                    entries[run_id] = entry
    return entries


def _save(path: Path, changes: Mapping[str, _Entry], removed: Iterable[str]) -> None:
    """Save rows in the index; an index that cannot be written only makes the next listing slower."""
    rows = [
        (run_id, entry.created, entry.stamp, entry.summary, entry.compute_checksum(run_id))
        for run_id, entry in changes.items()
    ]
    outdated = [(run_id,) for run_id in removed]
    if not (rows or outdated):
        return
    with suppress(OSError, sqlite3.OperationalError):
        try:
            _write(path, rows, outdated)
        except sqlite3.OperationalError:  # locked, read-only, or without room
            raise
        except sqlite3.DatabaseError:
            path.unlink()
            _write(path, rows, ())


def _write(path: Path, rows: Sequence[tuple[object, ...]], outdated: Sequence[tuple[str]]) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    with closing(_connect(path.as_uri())) as connection, connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS summaries "
            "(id TEXT PRIMARY KEY, created REAL, stamp TEXT, summary TEXT, checksum INTEGER)"
        )
        connection.executemany("DELETE FROM summaries WHERE id = ?", outdated)
        connection.executemany("INSERT OR REPLACE INTO summaries VALUES (?, ?, ?, ?, ?)", rows)


def _connect(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, timeout=_LOCKED_S)
