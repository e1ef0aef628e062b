"""The SQLite file of a journal: its lock, opened for one writer or any reader, and what a damaged one still holds."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sqlite3
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from ngbkit import limits
from ngbkit.errors import FencedError, JournalError
from ngbkit.files import is_locked, write_atomically

FORMAT = 1

# The declarations of the columns of each table.
_TABLES = {
    "starts": "trial_id TEXT NOT NULL, phase TEXT NOT NULL, at REAL NOT NULL",
    "results": "trial_id TEXT PRIMARY KEY, status TEXT NOT NULL, record TEXT NOT NULL, latency BLOB NOT NULL, "
    "rounds BLOB NOT NULL, checksum INTEGER NOT NULL",
    "notes": "kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, checksum INTEGER NOT NULL, "
    "PRIMARY KEY (kind, key)",
}
_SCHEMA = "".join(f"CREATE TABLE IF NOT EXISTS {table} ({columns});\n" for table, columns in _TABLES.items())
_SCHEMA += "CREATE INDEX IF NOT EXISTS starts_of_trial ON starts (trial_id);"
# The types of those columns: a damaged row may hold any value of any type.
_COLUMNS: dict[str, dict[str, type]] = {
    "starts": {"trial_id": str, "phase": str, "at": float},
    "results": {"trial_id": str, "status": str, "record": str, "latency": bytes, "rounds": bytes, "checksum": int},
    "notes": {"kind": str, "key": str, "value": str, "checksum": int},
}
# Write-ahead logging needs shared memory, which these do not have.
_NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "fuse.sshfs", "9p", "afs", "ceph"}
# An error with one of these texts is of the disk or of another process; any other one is of the file's content.
_CIRCUMSTANCES = ("locked", "busy", "full", "disk I/O", "unable to open", "out of memory", "interrupted")
# How long another process may hold a file before that is an error, and the pause between tries.
_LOCKED_S, _PAUSE_S = 30.0, 0.01
# A glance at the lock holds it for a moment: a writer tries so often, with that pause.
_LOCK_TRIES = 5

Row = tuple[Any, ...]
IsReadable = Callable[[Row], bool]
"""A check of whether a row of `results` with a valid checksum holds a record."""


@dataclass(slots=True)
class JournalFile:
    """An open file; `salvaged` is the number of results that were saved of it if it was damaged."""

    connection: sqlite3.Connection
    salvaged: int | None = None
    # A copy that is read instead of a file whose folder cannot be written to.
    copy: tempfile.TemporaryDirectory[str] | None = None

    def close(self) -> None:
        """Close the connection; closing twice is fine."""
        self.connection.close()
        if self.copy is not None:
            self.copy.cleanup()


def take_fence(path: Path) -> TextIO:
    """Lock a journal for writing; FencedError if another process has."""
    fence = open(_locate_lock(path), "a+", opener=lambda name, flags: os.open(name, flags, 0o600))  # noqa: SIM115
    try:
        _lock(fence)
    except BlockingIOError:
        fence.seek(0)
        holder = fence.read().strip() or "unknown"
        fence.close()
        raise FencedError(
            f"the journal {path.name} is held by another process (pid {holder}): the run is still measured there. "
            "Wait for it, or stop it, and try again."
        ) from None
    except OSError:  # a file system without locks
        fence.close()
        raise
    fence.truncate(0)
    fence.write(str(os.getpid()))
    fence.flush()
    return fence


def is_held(path: Path) -> bool:
    """Return whether a process writes to a journal."""
    return is_locked(_locate_lock(path))


def open_for_writing(path: Path, is_readable: IsReadable) -> JournalFile:
    """Open a file for its only writer; a damaged one is set aside, and a new one has all that can be read of it."""
    connection = _connect(path)
    try:
        _prepare(connection, path)
        if _is_sound(connection, is_readable):
            return JournalFile(connection)
    except BaseException as error:
        if not _is_damage(error, path):
            connection.close()
            raise
    connection.close()
    salvaged = _replace_damaged(path, is_readable)
    return JournalFile(_connect(path), salvaged)


def open_for_reading(path: Path) -> JournalFile:
    """Open a file for a reader, beside its writer or on a disk that is read-only; of a damaged one what can be read."""
    file = _open_shared(path)
    source = Path(file.copy.name, path.name) if file.copy is not None else path
    try:
        _check_format(file.connection, path)
        if _check_integrity(file.connection) and all(list_columns(file.connection, table) for table in _COLUMNS):
            return file
    except BaseException as error:
        if not _is_damage(error, source):
            file.close()
            raise
    memory = _connect(":memory:")
    memory.executescript(_SCHEMA)
    file.connection.close()
    salvaged = _salvage(source, memory)
    return JournalFile(memory, salvaged, file.copy)


def compute_checksum(row: Row) -> int:
    """Compute the checksum of a row without its last column, which holds it."""
    return zlib.crc32(b"\0".join(part if isinstance(part, bytes) else str(part).encode() for part in row))


def is_intact(table: str, row: Row) -> bool:
    """Return whether a row of a table is as it was written, as far as its types and its checksum tell."""
    if list(map(type, row)) != list(_COLUMNS[table].values()):
        return False
    return table == "starts" or row[-1] == compute_checksum(row[:-1])


def list_columns(connection: sqlite3.Connection, table: str) -> list[str]:
    """List the columns of a table."""
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def explain(error: sqlite3.Error, path: Path) -> JournalError:
    """Build the error for the user of a journal."""
    text = str(error)
    files = path.parent.glob(f"{path.name}*")
    is_cut = "disk I/O" in text and limits.is_near_file_limit(files)
    if limit := limits.describe("File too large" if is_cut else text):
        return JournalError(f"the journal {path} cannot be used: {limit}")
    if "full" in text or "disk I/O" in text or "readonly" in text:
        return JournalError(
            f"the disk that holds {path} is full, read-only or failing ({text}). Nothing that was committed is lost: "
            "free some space or make it writable, then resume."
        )
    if "locked" in text:
        return JournalError(
            f"the journal {path} cannot be used: {text}. Wait for the process that uses it; if none does, its file "
            "system has no locks: set NGBKIT_STATE_DIR to a folder on a local disk."
        )
    return JournalError(f"the journal {path} cannot be used: {text}.")


def _locate_lock(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _lock(fence: TextIO) -> None:
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(fence, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE_S)
        else:
            return
    fcntl.flock(fence, fcntl.LOCK_EX | fcntl.LOCK_NB)


class _Connection(sqlite3.Connection):
    """A connection to a file that may be damaged, where SQLite's own message may quote what is no text."""

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        try:
            return super().execute(*arguments)
        except UnicodeDecodeError as error:
            raise sqlite3.DatabaseError(f"malformed name: {error}") from error


def _connect(path: Path | str) -> sqlite3.Connection:
    # The run's own thread writes; whoever shows results reads through a connection of its own.
    connection = sqlite3.connect(path, timeout=_LOCKED_S, check_same_thread=False, factory=_Connection)
    # A damaged text must not end the reading of others; half a character never checks.
    connection.text_factory = lambda text: text.decode(errors="replace")
    return connection


def _open_shared(path: Path) -> JournalFile:
    """Open a file in its place, or a copy of it where the log beside it cannot be used, as on a read-only disk."""
    connection = _connect(path)
    try:
        connection.execute("PRAGMA schema_version").fetchone()
        return JournalFile(connection)
    except sqlite3.DatabaseError as error:
        if not any(text in str(error) for text in ("unable to open", "readonly")):
            return JournalFile(connection)
        connection.close()
    copy = tempfile.TemporaryDirectory(prefix="ngbkit-journal-")
    try:
        _copy(path, Path(copy.name, path.name))
        return JournalFile(_connect(Path(copy.name, path.name)), copy=copy)
    except BaseException:
        copy.cleanup()
        raise


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    path.chmod(0o600)
    mode = "DELETE" if _file_system(path) in _NETWORK_FILE_SYSTEMS else "WAL"
    _set_mode(connection, mode)
    connection.execute("PRAGMA synchronous=FULL")
    _check_format(connection, path)
    with connection:
        connection.executescript(_SCHEMA)
        connection.execute(f"PRAGMA user_version={FORMAT}")


def _set_mode(connection: sqlite3.Connection, mode: str) -> None:
    """Set the mode of the journal once nobody else opens the file: SQLite waits for a reader, and not for that."""
    deadline = time.monotonic() + _LOCKED_S
    while True:
        try:
            connection.execute(f"PRAGMA journal_mode={mode}")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_S)
        else:
            return


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > FORMAT:
        raise JournalError(
            f"{path} has journal format {version}; this ngbkit reads up to {FORMAT}. Install a newer ngbkit."
        )
    # Reading a foreign view could run for ever.
    if connection.execute("SELECT count(*) FROM sqlite_master WHERE type NOT IN ('table', 'index')").fetchone()[0]:
        raise JournalError(f"invalid journal {path}: got a database with views or triggers; expected tables alone.")
    for table in _COLUMNS:
        if list_columns(connection, table) not in ([], list(_COLUMNS[table])):
            raise sqlite3.DatabaseError(f"malformed columns of {table}")


def _is_sound(connection: sqlite3.Connection, is_readable: IsReadable) -> bool:
    """Return whether the file and every row of it are as they were written."""
    if not _check_integrity(connection):
        return False
    tables = {table: connection.execute(f"SELECT * FROM {table}") for table in _COLUMNS}
    return all(is_intact(table, row) for table, rows in tables.items() for row in rows) and all(
        is_readable(row) for row in connection.execute("SELECT * FROM results")
    )


def _check_integrity(connection: sqlite3.Connection) -> bool:
    # Unlike quick_check it compares an index with its table, on which writing relies.
    return bool(connection.execute("PRAGMA integrity_check(1)").fetchone()[0] == "ok")


def _file_system(path: Path) -> str:
    """The type of the file system that holds `path`, ``""`` where that is not known."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return ""
    holders = [(len(mount), kind) for mount, kind in mounts if path.absolute().is_relative_to(mount)]
    return max(holders, default=(0, ""))[1]


def _is_damage(error: BaseException, path: Path) -> bool:
    if not isinstance(error, sqlite3.Error):
        return False
    if "readonly" in str(error):  # a damaged header says so of a file that can be written to
        return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    return not any(text in str(error) for text in _CIRCUMSTANCES)


def _replace_damaged(path: Path, is_readable: IsReadable) -> int:
    """Copy a damaged file and replace it by its readable rows; return the number of its results."""
    names = (path.with_name(f"{path.name}.damaged{number or ''}") for number in range(10_000))
    damaged = next(name for name in names if not name.exists())
    _copy(path, damaged)
    # A kill at any moment leaves the damaged file or the whole new one.
    with write_atomically(path) as temporary:
        with contextlib.closing(_connect(temporary)) as fresh:
            _prepare(fresh, temporary)
            salvaged = _salvage(damaged, fresh, is_readable)
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
    return salvaged


def _copy(path: Path, target: Path) -> None:
    """Copy a file with its log."""
    for suffix in ("", "-wal"):
        source = path.with_name(path.name + suffix)
        if not suffix or source.exists():
            shutil.copyfile(source, target.with_name(target.name + suffix))


def _salvage(damaged: Path, fresh: sqlite3.Connection, is_readable: IsReadable = bool) -> int:
    """Copy the rows of a damaged file that are as they were written; return how many of them are results."""
    with contextlib.closing(_connect(damaged)) as old:
        _restore_columns(old)
        with contextlib.suppress(sqlite3.Error):
            # Lets a file be read that is shorter than its header says.
            old.execute("PRAGMA writable_schema=ON")
        return {table: _save_rows(old, fresh, table, is_readable) for table in _COLUMNS}["results"]


def _restore_columns(old: sqlite3.Connection) -> None:
    """Declare damaged columns anew until the file is closed: the file itself stays as it is."""
    with contextlib.suppress(sqlite3.Error):
        old.execute("PRAGMA writable_schema=ON")
        for table, columns in _TABLES.items():
            if list_columns(old, table) != list(_COLUMNS[table]):
                declaration = f"CREATE TABLE {table} ({columns})"
                old.execute("UPDATE sqlite_master SET sql = ? WHERE type = 'table' AND name = ?", (declaration, table))
        old.execute("PRAGMA writable_schema=RESET")


def _save_rows(old: sqlite3.Connection, fresh: sqlite3.Connection, table: str, is_readable: IsReadable) -> int:
    """Copy row by row, from either end: a page that is gone ends a scan, and the other scan gets what lies behind."""
    width = len(_COLUMNS[table])
    places = ", ".join("?" * width)
    saved = 0
    for order in ("ASC", "DESC"):
        with fresh, contextlib.suppress(sqlite3.Error):
            names = ", ".join(list(_COLUMNS[table])[: len(list_columns(old, table))])
            for row in old.execute(f"SELECT {names} FROM {table} ORDER BY rowid {order}"):
                if is_intact(table, row) and (table != "results" or is_readable(row)):
                    saved += fresh.execute(f"INSERT OR IGNORE INTO {table} VALUES ({places})", row).rowcount
            break
    return saved
