"""Damaged and foreign journals: what is read was written, and what is damaged costs its own trial alone."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from journalled import measurement

from ngbkit.errors import JournalError
from ngbkit.sweep import journal_file, records
from ngbkit.sweep.journal import Journal, encode
from ngbkit.sweep.records import Record


def execute(path: Path, statement: str, *parameters: Any) -> None:
    """Change a journal behind ngbkit's back."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, parameters)


def read_records(path: Path, writable: bool = False) -> tuple[dict[str, Record], dict[str, str], Journal]:
    """The records and the statuses of a journal, and the journal, closed."""
    with Journal(path, writable=writable) as journal:
        return {record.trial_id: record for record in journal.records()}, journal.statuses(), journal


def test_a_flipped_bit_makes_a_record_pending(tmp_path: Path) -> None:
    """A reader leaves it out and says so; a writer sets the damaged file aside."""
    path = tmp_path / "j.sqlite"
    with Journal(path) as journal:
        journal.finish([measurement("a"), measurement("b")])
    content = path.read_bytes()
    sample = encode(measurement("a"))[3][8:16]
    path.write_bytes(content.replace(sample, bytes([*sample[:-1], sample[-1] ^ 1]), 1))

    (first, statuses, reader), (second, rest, writer) = read_records(path), read_records(path, writable=True)

    assert 1 == len(first) == len(second)
    assert first == second
    assert statuses == rest == dict.fromkeys(first, "ok")
    assert ({"a", "b"} - set(first), None) == (set(reader.damaged), reader.salvaged)
    assert (set(), 1) == (set(writer.damaged), writer.salvaged)
    assert content != path.with_name("j.sqlite.damaged").read_bytes()
    assert all(record == measurement(name) for name, record in first.items())


@pytest.mark.parametrize("name", [b"latency BLOB", b"checksum INTEGER NOT", b"value TEXT", b"phase TEXT"])
@pytest.mark.parametrize("byte", [b"\xe8", b"x", b"\0", b","])
def test_a_damaged_name_of_a_column_costs_no_record(tmp_path: Path, name: bytes, byte: bytes) -> None:
    """Every record is recovered from a journal with a damaged column name, even one that is no text."""
    path = tmp_path / "j.sqlite"
    with Journal(path) as journal:
        journal.finish([measurement("a")])
        journal.note("environment", "cpu", {})
        journal.start(["b"], "load")
    content = path.read_bytes()
    damaged = content.replace(name, byte + name[1:])
    path.write_bytes(damaged)

    assert content != damaged
    for writable in (False, True):
        read, _, journal = read_records(path, writable)
        assert 1 == journal.salvaged
        assert {"a": measurement("a")} == read
    assert damaged == path.with_name("j.sqlite.damaged").read_bytes()
    with Journal(path) as journal:
        assert {"cpu": {}} == journal.notes("environment")
        assert {"b": 1} == journal.unfinished("load")


def test_an_error_that_quotes_what_is_no_text_is_damage(tmp_path: Path) -> None:
    """SQLite names the table whose schema it cannot parse, and Python cannot read that name."""
    path = tmp_path / "j.sqlite"
    with Journal(path) as journal:
        journal.finish([measurement("a")])
    content = path.read_bytes()
    damaged = content.replace(b"tableresultsresults", b"tabler\xcesultsr\xcesults").replace(
        b"CREATE TABLE results", b"CREATE T\xceBLE results"
    )
    path.write_bytes(damaged)

    assert content != damaged
    for writable in (False, True):
        read, _, journal = read_records(path, writable)
        assert 0 == journal.salvaged
        assert {} == read
    assert damaged == path.with_name("j.sqlite.damaged").read_bytes()


@pytest.mark.parametrize("column", ["status", "record", "latency", "rounds", "checksum"])
@pytest.mark.parametrize("value", [None, 3, "text", b"bytes"])
def test_a_value_of_any_type_costs_its_own_record_alone(tmp_path: Path, column: str, value: object) -> None:
    """Damage may leave anything in a column, NULL included."""
    path = tmp_path / "j.sqlite"
    with Journal(path) as journal:
        journal.finish([measurement("a"), measurement("b")])
    execute(path, "CREATE TABLE loose AS SELECT * FROM results")
    execute(path, "DROP TABLE results")
    execute(path, "ALTER TABLE loose RENAME TO results")
    execute(path, f"UPDATE results SET {column} = ? WHERE trial_id = 'a'", value)

    for writable in (False, True):
        read, statuses, _ = read_records(path, writable)
        assert ({"b": measurement("b")}, {"b": "ok"}) == (read, statuses)


@pytest.mark.parametrize(
    "change",
    [
        {"facts": "x"},
        {"compile_time_s": "1"},
        {"rmse": []},
        {"contended_samples": [-1]},
        {"contended_samples": [3]},
        {"calls_per_sample": 0},
        {"compile_time_s": float("inf")},
        {"peak_memory_bytes": 10**400},
        {"trial_id": "b"},
    ],
)
def test_an_invalid_record_costs_its_own_trial_alone(tmp_path: Path, change: dict[str, Any]) -> None:
    """An invalid record with the right checksum loses its own trial alone."""
    path = tmp_path / "j.sqlite"
    with Journal(path) as journal:
        journal.finish([measurement("a"), measurement("b")])
    trial_id, status, text, latency, rounds, _ = encode(measurement("a"))
    row = (trial_id, status, json.dumps({**json.loads(text), **change}), latency, rounds)
    execute(path, "INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?, ?)", *row, journal_file.compute_checksum(row))
    first, _, reader = read_records(path)
    second, statuses, _ = read_records(path, writable=True)

    assert {"b": measurement("b")} == first == second
    assert {"a"} == set(reader.damaged)
    assert {"b": "ok"} == statuses


def test_a_record_of_a_newer_format_is_an_error_and_stays(tmp_path: Path) -> None:
    """A record of a newer format is an error, and the file stays."""
    path = tmp_path / "j.sqlite"
    with Journal(path) as journal:
        journal.finish([measurement("a")])
    trial_id, status, text, latency, rounds, _ = encode(measurement("a"))
    row = (trial_id, status, json.dumps({**json.loads(text), "format": records.FORMAT + 1}), latency, rounds)
    execute(path, "INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?, ?)", *row, journal_file.compute_checksum(row))

    for writable in (True, False):
        with pytest.raises(JournalError, match="Install a newer ngbkit"):
            read_records(path, writable)
    assert not list(tmp_path.glob("*.damaged"))


@pytest.mark.parametrize("value", ["{", '{"chip": 3}', '{"chip": "Other"}', "[" * 100_000, None, b"x"])
def test_a_damaged_note_costs_nothing_else(tmp_path: Path, value: object) -> None:
    """A damaged note is omitted, and the other notes stay."""
    path = tmp_path / "j.sqlite"
    with Journal(path) as journal:
        journal.note("environment", "cpu", {"chip": "Some"})
        journal.note("environment", "far", {"chip": "Some"})
        journal.finish([measurement("a")])
    execute(path, "CREATE TABLE loose AS SELECT * FROM notes")
    execute(path, "DROP TABLE notes")
    execute(path, "ALTER TABLE loose RENAME TO notes")
    execute(path, "UPDATE notes SET value = ? WHERE key = 'cpu'", value)

    for writable in (False, True):
        with Journal(path, writable=writable) as journal:
            assert {"far": {"chip": "Some"}} == journal.notes("environment")
            assert {"a": "ok"} == journal.statuses()


def test_a_reader_gets_what_can_be_read_of_a_cut_file_and_leaves_it(tmp_path: Path) -> None:
    """A reader recovers the records of a truncated journal and does not change its file."""
    path = tmp_path / "j.sqlite"
    with Journal(path) as journal:
        journal.finish([measurement(f"trial-{index:04d}", samples=100) for index in range(100)])
    os.truncate(path, path.stat().st_size // 2)
    content = path.read_bytes()
    read, _, journal = read_records(path)

    assert 30 <= len(read) == journal.salvaged < 100
    assert all(record == measurement(name, samples=100) for name, record in read.items())
    assert content == path.read_bytes()


def test_each_damaged_file_is_kept(tmp_path: Path) -> None:
    """The second does not replace the first."""
    path = tmp_path / "j.sqlite"
    for text in (b"first", b"second"):
        path.write_bytes(text * 1000)
        Journal(path).close()

    assert path.with_name("j.sqlite.damaged").read_bytes().startswith(b"first")
    assert path.with_name("j.sqlite.damaged1").read_bytes().startswith(b"second")


def test_a_database_that_computes_is_refused(tmp_path: Path) -> None:
    """Reading a view of a stranger could run for ever."""
    path = tmp_path / "j.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
        connection.execute(f"CREATE VIEW results AS {endless}")

    with pytest.raises(JournalError, match="views or triggers"):
        Journal(path, writable=False)


@contextmanager
def deny_writing(folder: Path) -> Iterator[None]:
    """Take the right to write to a folder from this process; root has it anyway, and becomes nobody for the block."""
    user = os.geteuid()
    for path in (folder, *folder.iterdir()):
        path.chmod(0o555 if path.is_dir() else 0o444)
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        folder.chmod(0o755)


def test_a_journal_is_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    """A reader without write access gets all committed records, including those in the log."""
    path = tmp_path / "j.sqlite"
    with Journal(path) as journal, tempfile.TemporaryDirectory(prefix="ngbkit-readonly-") as name:
        journal.finish([measurement("a")])
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{path}{suffix}", Path(name, f"j.sqlite{suffix}"))
        with deny_writing(Path(name)):
            read, statuses, _ = read_records(Path(name, "j.sqlite"))
        names = {file.name for file in Path(name).iterdir()}

    assert ({"a": measurement("a")}, {"a": "ok"}) == (read, statuses)
    assert {"j.sqlite", "j.sqlite-wal"} == names


def test_a_new_journal_waits_for_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new journal retries while a reader locks its file."""
    execute_statement, refusals = journal_file._Connection.execute, []

    def refuse(connection: Any, *arguments: Any) -> Any:
        if "journal_mode" in arguments[0] and len(refusals) < 3:
            refusals.append(arguments)
            raise sqlite3.OperationalError("database is locked")
        return execute_statement(connection, *arguments)

    monkeypatch.setattr(journal_file._Connection, "execute", refuse)
    with Journal(tmp_path / "j.sqlite") as journal:
        journal.finish([measurement("a")])

    assert 3 == len(refusals)
    assert ["a"] == list(read_records(tmp_path / "j.sqlite")[0])


def test_a_journal_that_stays_locked_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that stays locked is an error after a time limit."""
    monkeypatch.setattr(journal_file, "_LOCKED_S", 0.05)
    path = tmp_path / "j.sqlite"
    with closing(sqlite3.connect(path)) as reader:
        reader.execute("CREATE TABLE t (x)")
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM t").fetchall()
        with pytest.raises(JournalError, match="locked"):
            Journal(path)


def test_a_limit_of_the_size_of_files_is_no_fault_of_the_disk(tmp_path: Path) -> None:
    """SQLite reports it as a disk that fails."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, limit[1]))
    try:
        with pytest.raises(JournalError, match=r"a file may have at most 2.05 kB \(ulimit -f\)\. Raise the limit"):
            Journal(tmp_path / "a.sqlite")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
