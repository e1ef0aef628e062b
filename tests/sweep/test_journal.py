"""The journal: what is committed survives, whatever happens next."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from journalled import measurement

from ngbkit.errors import FencedError, JournalError
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Failure


def failure(trial_id: str) -> Failure:
    return Failure(trial_id=trial_id, status="timeout", stage="compile", error="too slow")


def test_what_was_committed_is_read_back_unchanged(tmp_path: Path) -> None:
    """A record comes back from a journal that was closed and opened again as it went in."""
    with Journal(tmp_path / "j.sqlite") as journal:
        journal.finish([measurement("a"), failure("b")])
    with Journal(tmp_path / "j.sqlite") as journal:
        records = {record.trial_id: record for record in journal.records()}

    assert {"a": measurement("a"), "b": failure("b")} == records


def test_a_start_without_a_pass_counts_as_an_attempt(tmp_path: Path) -> None:
    """The journal counts the starts of a phase that no pass took back."""
    with Journal(tmp_path / "j.sqlite") as journal:
        journal.start(["a", "b"], "load")
        journal.start(["a"], "load")
        journal.passed(["b"], "load")
        unfinished = journal.unfinished("load")

    assert (2, 0, 0) == (unfinished["a"], unfinished["b"], unfinished["never"])


def test_a_record_is_found_without_reading_all(tmp_path: Path) -> None:
    """SQLite takes few steps to read one of a thousand records."""
    measurements = [measurement(str(number)) for number in range(1000)]
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    with Journal(tmp_path / "journal.sqlite") as journal:
        journal.finish(measurements)
        journal._file.connection.set_progress_handler(count, 1)
        selected = list(journal.records(["700"]))

    assert measurements[700:701] == selected
    assert steps < 100


def test_forgetting_takes_back_records_and_starts(tmp_path: Path) -> None:
    """A trial that is to be run again leaves no trace of the first time."""
    with Journal(tmp_path / "j.sqlite") as journal:
        journal.finish([failure("a"), failure("b")])
        journal.start(["a"], "load")
        journal.forget(["a"])

        assert {"b": "timeout"} == journal.statuses()
        assert 0 == journal.unfinished("load")["a"]


def test_the_fence_keeps_a_second_writer_out_and_names_the_first(tmp_path: Path) -> None:
    """Two processes cannot write to one journal; a reader is let in."""
    with Journal(tmp_path / "j.sqlite") as journal:
        journal.finish([measurement("a")])
        code = (
            "import sys; from pathlib import Path; from ngbkit.sweep.journal import Journal; Journal(Path(sys.argv[1]))"
        )
        other = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "j.sqlite")], capture_output=True, text=True, check=False
        )
        with Journal(tmp_path / "j.sqlite", writable=False) as reader:
            statuses = reader.statuses()

    assert other.returncode == 1
    assert "FencedError" in other.stderr
    assert f"pid {os.getpid()}" in other.stderr
    assert {"a": "ok"} == statuses


def test_the_fence_falls_with_its_holder(tmp_path: Path) -> None:
    """A writer that was killed holds nothing: the next one gets in and finds what was committed."""
    code = """
import os, signal, sys
from pathlib import Path
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Failure
journal = Journal(Path(sys.argv[1]))
journal.finish([Failure(trial_id="a", status="failed", stage="build", error="x")])
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "j.sqlite")], check=False)
    with Journal(tmp_path / "j.sqlite") as journal:
        assert {"a": "failed"} == journal.statuses()


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7, 0.9])
def test_a_journal_cut_in_the_middle_keeps_what_lies_before_the_cut(tmp_path: Path, share: float) -> None:
    """A truncated file is set aside, and every record that can still be read is in the new one."""
    path = tmp_path / "j.sqlite"
    with Journal(path) as journal:
        for index in range(400):
            journal.finish([measurement(f"trial-{index:04d}", samples=100)])
    size = path.stat().st_size
    os.truncate(path, int(size * share))

    with Journal(path) as journal:
        saved = {record.trial_id: record for record in journal.records()}
        journal.finish([measurement("new")])
        assert journal.salvaged == len(saved)

    assert len(saved) >= 400 * share * 0.8
    assert all(record == measurement(key, samples=100) for key, record in saved.items())
    assert (tmp_path / "j.sqlite.damaged").exists()


def test_a_write_ahead_log_cut_in_the_middle_loses_the_last_record_only(tmp_path: Path) -> None:
    """Power lost in the middle of a commit: that record is gone, those before it are not."""
    path = tmp_path / "j.sqlite"
    code = """
import os, signal, sys
from pathlib import Path
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Failure
journal = Journal(Path(sys.argv[1]))
for name in "abc":
    journal.finish([Failure(trial_id=name, status="failed", stage="build", error="x")])
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    log = tmp_path / "j.sqlite-wal"
    os.truncate(log, log.stat().st_size - 100)

    with Journal(path) as journal:
        assert {"a", "b"} <= set(journal.statuses()) < {"a", "b", "c"}


def test_something_else_than_a_journal_is_set_aside(tmp_path: Path) -> None:
    """A file that is not SQLite at all is kept under another name and a new journal is begun."""
    path = tmp_path / "j.sqlite"
    path.write_bytes(b"this is a text" * 1000)
    with Journal(path) as journal:
        assert 0 == journal.salvaged
        assert {} == journal.statuses()

    assert path.with_name("j.sqlite.damaged").read_bytes().startswith(b"this is a text")


def test_a_journal_of_a_newer_format_is_left_alone(tmp_path: Path) -> None:
    """A journal of a newer format is an error that asks for a newer ngbkit."""
    import sqlite3

    path = tmp_path / "j.sqlite"
    Journal(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=99")
    connection.close()

    with pytest.raises(JournalError, match=r"format 99.*Install a newer ngbkit"):
        Journal(path)


def test_a_full_disk_is_named_and_what_was_committed_stays(tmp_path: Path) -> None:
    """The error of a full disk has a remedy, and earlier records stay."""
    path = tmp_path / "j.sqlite"
    with Journal(path) as journal:
        journal.finish([measurement("a")])
        pages = journal._file.connection.execute("PRAGMA page_count").fetchone()[0]
        journal._file.connection.execute(f"PRAGMA max_page_count={pages + 1}")
        with pytest.raises(JournalError, match=r"full.*free some space or make it writable, then resume"):
            journal.finish([measurement(f"b{index}", samples=1000) for index in range(50)])
    with Journal(path) as journal:
        assert {"a": "ok"} == journal.statuses()


def test_only_the_owner_may_read_a_journal(tmp_path: Path) -> None:
    """Sources of cells are in journals; nobody else needs to see them."""
    with Journal(tmp_path / "deep" / "j.sqlite"):
        mode = (tmp_path / "deep" / "j.sqlite").stat().st_mode & 0o777
        folder = (tmp_path / "deep").stat().st_mode & 0o777

    assert (0o600, 0o700) == (mode, folder)


def test_a_missing_journal_cannot_be_read(tmp_path: Path) -> None:
    """The reader of a missing journal raises an error and creates no file."""
    with pytest.raises(JournalError, match="no journal"):
        Journal(tmp_path / "j.sqlite", writable=False)

    assert not (tmp_path / "j.sqlite").exists()


def test_a_held_fence_is_an_error_of_its_own_kind(tmp_path: Path) -> None:
    """A second writer gets a FencedError, which differs from the error of a damaged journal."""
    with Journal(tmp_path / "j.sqlite"), pytest.raises(FencedError, match="Wait for it"):
        Journal(tmp_path / "j.sqlite")
