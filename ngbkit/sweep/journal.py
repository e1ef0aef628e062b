"""The durable record of a run on one device: append, replay, fence.

A journal is an SQLite file. A trial's `start` is committed before it is tried and its record before anyone is told of
it, so a kill at any moment loses what was in flight and no more. A writer holds a lock in a file next to it, the
fence: an engine that only seemed dead cannot measure at the same time as its successor.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import numpy as np

from ngbkit import files, user_text, validation
from ngbkit.errors import JournalError
from ngbkit.sweep import journal_file, notes, records
from ngbkit.sweep.journal_file import FORMAT, JournalFile, Row, compute_checksum, is_intact
from ngbkit.sweep.records import Measurement, NewerRecordError, Record

__all__ = ["FORMAT", "Entry", "Journal", "encode"]

Entry = tuple[Record, "Sequence[float] | np.ndarray", "Sequence[int] | np.ndarray"]
"""A record, its latencies and its rounds: of a journal they are arrays, and the record itself has none."""

# In the JSON of a record that is, and perhaps of others: most need not be decoded.
_STOPPED = '"stopped":true'
# A run asks for one trial at a time, and a device sends 200 records in a reply.
_MOST_IDS = 200


_INFINITE = np.array(np.inf, "<f8").view("<u8")[()]
_LARGEST = np.iinfo(np.int32).max


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
        read of it is saved into a new one; a reader leaves it in its place.

    Attributes
    ----------
    salvaged : int or None
        The number of results that could be read of a damaged file; None of a sound one.
    damaged : dict
        The reason why each damaged row is left out, by trial id, or by the kind and the key of a note; filled while
        rows are read.
    """

    def __init__(self, path: Path, *, writable: bool = True) -> None:
        self.path = path
        self.damaged: dict[str, str] = {}
        self._fence: TextIO | None = None
        if not writable and not path.exists():
            raise JournalError(f"there is no journal at {path}.")
        try:
            if writable:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._fence = journal_file.take_fence(path)
                self._file: JournalFile = journal_file.open_for_writing(path, _is_readable)
            else:
                self._file = journal_file.open_for_reading(path)
        except sqlite3.Error as error:
            self._release()
            raise journal_file.explain(error, path) from error
        except OSError as error:
            self._release()
            error.filename = error.filename or str(path)
            raise JournalError(f"the journal cannot be opened: {files.explain(error)}") from error
        except JournalError:
            self._release()
            raise

    @property
    def salvaged(self) -> int | None:
        return self._file.salvaged

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
        rows = [encode(record) for record in finished]
        self._write(
            ("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?, ?)", rows),
            ("DELETE FROM starts WHERE trial_id = ?", [row[:1] for row in rows]),
        )

    def forget(self, trial_ids: Iterable[str]) -> None:
        """Take back the records and starts of trials that are to be run again."""
        ids = [(trial_id,) for trial_id in trial_ids]
        self._write(("DELETE FROM results WHERE trial_id = ?", ids), ("DELETE FROM starts WHERE trial_id = ?", ids))

    def note(self, kind: str, key: str, value: Any) -> None:
        """Commit a piece of plain JSON that belongs to the run: ``("environment", device, {...})``."""
        row = (kind, key, json.dumps(value))
        self._write(("INSERT OR REPLACE INTO notes VALUES (?, ?, ?, ?)", [(*row, compute_checksum(row))]))

    def notes(self, kind: str) -> dict[str, Any]:
        """Every valid note of that kind, by key (`ngbkit.sweep.notes`)."""
        valid: dict[str, Any] = {}
        for row in self._read("SELECT * FROM notes WHERE kind = ?", (kind,)):
            try:
                valid[row[1]] = notes.parse(kind, row[1], json.loads(_check("notes", row)[2]))
            except (JournalError, ValueError, RecursionError) as error:
                self._report_damage(f"{kind} {row[1]}", error)
        return valid

    def statuses(self) -> dict[str, str]:
        """The status of every trial whose record is as it was written."""
        return {row[0]: row[1] for row in self._read("SELECT * FROM results") if is_intact("results", row)}

    def list_stopped(self) -> set[str]:
        """List the trials whose run was stopped before they had all of their samples."""
        rows = self._read("SELECT trial_id FROM results WHERE instr(record, ?)", (_STOPPED,))
        return {record.trial_id for record in self.records({row[0] for row in rows}) if records.is_stopped(record)}

    def unfinished(self, phase: str) -> Mapping[str, int]:
        """Count how often each trial entered that phase and its process ended within it; 0 for all others."""
        return Counter(
            dict(self._read("SELECT trial_id, count(*) FROM starts WHERE phase = ? GROUP BY trial_id", (phase,)))
        )

    def entries(self, trial_ids: Collection[str] | None = None) -> Iterator[Entry]:
        """Every valid record, or the records of some trials: no sample becomes a Python object."""
        for row in self._read_results(trial_ids):
            if trial_ids is None or row[0] in trial_ids:
                try:
                    entry = _decode(row)
                except NewerRecordError:
                    raise
                except JournalError as error:
                    self._report_damage(row[0], error)
                else:
                    yield entry

    def _read_results(self, trial_ids: Collection[str] | None) -> Iterator[Row]:
        """Read all rows, or by the index those of a few trials, in the order in which they were written."""
        if trial_ids is None or len(trial_ids) > _MOST_IDS:
            return self._read("SELECT * FROM results")
        places = ", ".join("?" * len(trial_ids))
        return self._read(f"SELECT * FROM results WHERE trial_id IN ({places}) ORDER BY rowid", tuple(trial_ids))

    def records(self, trial_ids: Collection[str] | None = None) -> Iterator[Record]:
        """Every valid record, or the records of some trials."""
        for record, latency, rounds in self.entries(trial_ids):
            if isinstance(record, Measurement):
                samples = tuple(np.asarray(latency).tolist())
                yield replace(record, latency_s=samples, rounds=tuple(np.asarray(rounds).tolist()))
            else:
                yield record

    def _report_damage(self, name: Any, reason: Exception) -> None:
        self.damaged[user_text.clean_line(str(name))] = str(reason)

    def close(self) -> None:
        """Let go of the file and of the fence; closing twice is fine."""
        self._file.close()
        self._release()

    def _release(self) -> None:
        if self._fence is not None:
            self._fence.close()
            self._fence = None

    def _write(self, *statements: tuple[str, Sequence[tuple[Any, ...]]]) -> None:
        """Each statement with each of its rows, in one transaction."""
        try:
            with self._file.connection:
                for statement, rows in statements:
                    self._file.connection.executemany(statement, rows)
        except sqlite3.Error as error:
            raise journal_file.explain(error, self.path) from error

    def _read(self, statement: str, parameters: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._file.connection.execute(statement, parameters)
        except sqlite3.Error as error:
            raise journal_file.explain(error, self.path) from error

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def encode(record: Record) -> Row:
    """Encode a record as the row of a journal: id, status, JSON, latencies as <f8, rounds as <i4, and the checksum."""
    data = records.to_json(record)
    latency = np.asarray(data.pop("latency_s", ()), dtype="<f8").tobytes()
    rounds = np.asarray(data.pop("rounds", ()), dtype="<i4").tobytes()
    row = (record.trial_id, record.status, json.dumps(data, separators=(",", ":")), latency, rounds)
    return (*row, compute_checksum(row))


def _decode(row: Row) -> Entry:
    """Decode a row; JournalError if it is not as it was written, or holds no record."""
    trial_id, status, text, latency, rounds, _ = _check("results", row)
    try:
        data, samples, numbers = json.loads(text), np.frombuffer(latency, "<f8"), np.frombuffer(rounds, "<i4")
    except (ValueError, RecursionError) as error:
        raise JournalError(f"invalid record: {error}.") from None
    if not isinstance(data, dict):
        raise JournalError(f"invalid record: got {validation.describe(data)}; expected an object.")
    record = records.from_json(data, samples=len(samples))
    if (record.trial_id, record.status) != (trial_id, status):
        raise JournalError(f"invalid record: got one of trial {record.trial_id}; expected {trial_id}.")
    if len(samples) != len(numbers):
        raise JournalError(f"invalid record: got {len(samples)} samples and {len(numbers)} rounds; expected as many.")
    if len(samples) and not _are_valid(samples, numbers):
        raise JournalError("invalid record: got samples or rounds that are no numbers of at least 0.")
    return record, samples, numbers


def _are_valid(samples: np.ndarray, numbers: np.ndarray) -> bool:
    """Return whether all samples are finite and none of the numbers is negative."""
    # As unsigned integers, bits of negative, infinite and missing numbers are larger than those of any other number.
    largest = np.maximum.reduce(samples.view("<u8")), np.maximum.reduce(numbers.view("<u4"))
    return bool(largest[0] < _INFINITE and largest[1] <= _LARGEST)


def _check(table: str, row: Row) -> Row:
    if not is_intact(table, row):
        raise JournalError("its checksum does not match what was written.")
    return row


def _is_readable(row: Row) -> bool:
    try:
        _decode(row)
    except NewerRecordError:
        raise
    except JournalError:
        return False
    return True
