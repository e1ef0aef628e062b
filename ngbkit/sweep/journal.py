"""The durable record of a run on one device: append, replay, fence.

A journal is an SQLite file. A trial's `start` is committed before it is tried and its record before anyone is told of
it, so a kill at any moment loses what was in flight and no more. Whoever writes holds a lock beside it, the fence: an
engine that was only thought dead cannot measure beside its successor.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import numpy as np

from ngbkit.errors import FencedError, JournalError
from ngbkit.sweep import records
from ngbkit.sweep.records import Record

FORMAT = 1
Row = tuple[str, str, bytes, bytes]
"""``(trial id, record as JSON without its samples, latencies as <f8, rounds as <i4)``: how a journal keeps a record."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS starts (trial_id TEXT NOT NULL, phase TEXT NOT NULL, at REAL NOT NULL);
CREATE INDEX IF NOT EXISTS starts_of_trial ON starts (trial_id);
CREATE TABLE IF NOT EXISTS results (
    trial_id TEXT PRIMARY KEY, status TEXT NOT NULL, record TEXT NOT NULL, latency BLOB NOT NULL, rounds BLOB NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS notes (kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (kind, key));
"""
# Write-ahead logging needs shared memory, which these do not have.
_NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "fuse.sshfs", "9p", "afs", "ceph"}


class Journal:
    """The journal in the file at `path`, held for writing until it is closed.

    Parameters
    ----------
    path
        The SQLite file; it and its folder are made where they are missing.
    writable
        False reads only, takes no fence, and may be done while another writes.

    Raises
    ------
    FencedError
        Another process is writing to it.
    JournalError
        It cannot be opened, or a newer ngbkit wrote it. A damaged file is set aside as ``*.damaged`` and what can be
        read of it is saved into a new one.
    """

    def __init__(self, path: Path, *, writable: bool = True) -> None:
        self.path = path
        self.salvaged: int | None = None
        self._fence: TextIO | None = None
        if not writable and not path.exists():
            raise JournalError(f"there is no journal at {path}.")
        try:
            if writable:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._fence = _take_fence(path)
            self._connection = self._open(writable)
        except sqlite3.DatabaseError as error:
            self._release()
            raise _explain(error, path) from error
        except OSError as error:
            self._release()
            raise JournalError(f"the journal {path} cannot be opened: {error}.") from error
        except JournalError:
            self._release()
            raise

    def _open(self, writable: bool) -> sqlite3.Connection:
        if not writable:
            return _connect(self.path)
        connection = _connect(self.path)
        try:
            _prepare(connection, self.path)
            if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                raise sqlite3.DatabaseError("malformed")
        except sqlite3.DatabaseError as error:
            connection.close()
            if not _is_damage(error):
                raise
            self.salvaged = _salvage(self.path)
            return _connect(self.path)
        except BaseException:
            connection.close()
            raise
        return connection

    def start(self, trial_ids: Iterable[str], phase: str) -> None:
        """Commit that these trials enter a phase: ``"load"`` (one at a time) or ``"measure"`` (a group together)."""
        now = time.time()
        self._write(("INSERT INTO starts VALUES (?, ?, ?)", [(trial_id, phase, now) for trial_id in trial_ids]))

    def passed(self, trial_ids: Iterable[str], phase: str) -> None:
        """Take back those starts: the trials came through that phase, or were stopped in it on purpose."""
        rows = [(trial_id, phase) for trial_id in trial_ids]
        self._write(("DELETE FROM starts WHERE trial_id = ? AND phase = ?", rows))

    def finish(self, finished: Iterable[Record]) -> None:
        """Commit what trials left behind, all in one transaction. A record that is here already is replaced."""
        rows = [(record.trial_id, record.status, *encode(record)[1:]) for record in finished]
        self._write(
            ("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?, ?)", [(*row, _checksum(row)) for row in rows]),
            ("DELETE FROM starts WHERE trial_id = ?", [row[:1] for row in rows]),
        )

    def forget(self, trial_ids: Iterable[str]) -> None:
        """Take back the records and starts of trials that are to be run again."""
        ids = [(trial_id,) for trial_id in trial_ids]
        self._write(("DELETE FROM results WHERE trial_id = ?", ids), ("DELETE FROM starts WHERE trial_id = ?", ids))

    def note(self, kind: str, key: str, value: Any) -> None:
        """Commit a piece of plain JSON that belongs to the run: ``("environment", device, {...})``."""
        self._write(("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", [(kind, key, json.dumps(value))]))

    def notes(self, kind: str) -> dict[str, Any]:
        """Every note of that kind, by key."""
        rows = self._read("SELECT key, value FROM notes WHERE kind = ?", (kind,))
        return {key: json.loads(value) for key, value in rows}

    def statuses(self) -> dict[str, str]:
        """The status of every trial that has a record."""
        return dict(self._read("SELECT trial_id, status FROM results"))

    def unfinished(self, phase: str) -> Mapping[str, int]:
        """How often each trial entered that phase and its process ended within it; 0 for all others."""
        return Counter(
            dict(self._read("SELECT trial_id, count(*) FROM starts WHERE phase = ? GROUP BY trial_id", (phase,)))
        )

    def rows(self) -> Iterator[Row]:
        """Every record as it is stored: see `Row`."""
        yield from self._read("SELECT trial_id, record, latency, rounds FROM results")

    def records(self) -> Iterator[Record]:
        """Every record."""
        for row in self.rows():
            yield decode(row)

    def close(self) -> None:
        """Let go of the file and of the fence; closing twice is fine."""
        self._connection.close()
        self._release()

    def _release(self) -> None:
        if self._fence is not None:
            self._fence.close()
            self._fence = None

    def _write(self, *statements: tuple[str, Sequence[tuple[Any, ...]]]) -> None:
        """Each statement with each of its rows, in one transaction."""
        try:
            with self._connection:
                for statement, rows in statements:
                    self._connection.executemany(statement, rows)
        except sqlite3.Error as error:
            raise _explain(error, self.path) from error

    def _read(self, statement: str, parameters: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._connection.execute(statement, parameters)
        except sqlite3.Error as error:
            raise _explain(error, self.path) from error

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def encode(record: Record) -> Row:
    """A record as a journal keeps it."""
    data = records.to_json(record)
    latency = np.asarray(data.pop("latency_s", ()), dtype="<f8").tobytes()
    rounds = np.asarray(data.pop("rounds", ()), dtype="<i4").tobytes()
    return record.trial_id, json.dumps(data, separators=(",", ":")), latency, rounds


def decode(row: Row) -> Record:
    """The record of a row that `Journal.rows` gave."""
    _, text, latency, rounds = row
    data = json.loads(text)
    if data.get("kind") == "measurement":
        data["latency_s"] = np.frombuffer(latency, "<f8").tolist()
        data["rounds"] = np.frombuffer(rounds, "<i4").tolist()
    return records.from_json(data)


def _checksum(row: tuple[Any, ...]) -> int:
    return zlib.crc32(b"\0".join(part if isinstance(part, bytes) else str(part).encode() for part in row))


def _connect(path: Path) -> sqlite3.Connection:
    # The run's own thread writes; whoever shows results reads through a connection of its own.
    return sqlite3.connect(path, timeout=30, check_same_thread=False)


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    path.chmod(0o600)
    mode = "DELETE" if _file_system(path) in _NETWORK_FILE_SYSTEMS else "WAL"
    connection.execute(f"PRAGMA journal_mode={mode}")
    connection.execute("PRAGMA synchronous=FULL")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > FORMAT:
        raise JournalError(
            f"{path} has journal format {version}; this ngbkit reads up to {FORMAT}. Install a newer ngbkit."
        )
    with connection:
        connection.executescript(_SCHEMA)
        connection.execute(f"PRAGMA user_version={FORMAT}")


def _file_system(path: Path) -> str:
    """The type of the file system that holds `path`, ``""`` where that is not known."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return ""
    holders = [(len(mount), kind) for mount, kind in mounts if path.absolute().is_relative_to(mount)]
    return max(holders, default=(0, ""))[1]


def _take_fence(path: Path) -> TextIO:
    fence = open(path.with_name(path.name + ".lock"), "a+", opener=lambda name, flags: os.open(name, flags, 0o600))  # noqa: SIM115
    try:
        fcntl.flock(fence, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fence.seek(0)
        holder = fence.read().strip() or "unknown"
        fence.close()
        raise FencedError(
            f"the journal {path.name} is held by another process (pid {holder}): the run is still measured there. "
            "Wait for it, or stop it, and try again."
        ) from None
    fence.truncate(0)
    fence.write(str(os.getpid()))
    fence.flush()
    return fence


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    return "malformed" in str(error) or "not a database" in str(error)


def _salvage(path: Path) -> int:
    """Set a damaged file aside and save what can be read of it into a new one; how many results were saved."""
    damaged = path.with_name(path.name + ".damaged")
    path.replace(damaged)
    for rest in ("-wal", "-shm"):
        remains = path.with_name(path.name + rest)
        if remains.exists():
            remains.replace(damaged.with_name(damaged.name + rest))
    widths = {"starts": 3, "results": 6, "notes": 3}
    with contextlib.closing(_connect(path)) as fresh, contextlib.closing(_connect(damaged)) as old:
        _prepare(fresh, path)
        with contextlib.suppress(sqlite3.DatabaseError):
            # Lets a file be read that is shorter than its header says.
            old.execute("PRAGMA writable_schema=ON")
        return {table: _save_rows(old, fresh, table, width) for table, width in widths.items()}["results"]


def _save_rows(old: sqlite3.Connection, fresh: sqlite3.Connection, table: str, width: int) -> int:
    """Copy row by row, from either end: a page that is gone ends a scan, and the other scan gets what lies behind."""
    places = ", ".join("?" * width)
    saved = 0
    for order in ("ASC", "DESC"):
        try:
            for row in old.execute(f"SELECT * FROM {table} ORDER BY rowid {order}"):
                # A page that is gone may read as zeros.
                if table == "results" and row[-1] != _checksum(row[:-1]):
                    continue
                with fresh:
                    saved += fresh.execute(f"INSERT OR IGNORE INTO {table} VALUES ({places})", row).rowcount
        except sqlite3.DatabaseError:
            continue
        break
    return saved


def _explain(error: sqlite3.Error, path: Path) -> JournalError:
    text = str(error)
    if "full" in text or "disk I/O" in text:
        return JournalError(
            f"the disk that holds {path} is full or failing ({text}). Nothing that was committed is lost: "
            "free some space, then resume."
        )
    return JournalError(f"the journal {path} cannot be used: {text}.")
