"""Damaged journals and run folders: nothing altered is read as genuine, and only ngbkit's own errors are raised.

A case flips bits, zeroes or swaps blocks, cuts the file or its log, puts foreign rows into tables, or foreign JSON into
``run.json``. The records that the run then has are compared with those that were written.
"""

from __future__ import annotations

import functools
import json
import shutil
import sqlite3
import tempfile
import warnings
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import synthetic
from arbitrary import SCALARS, VALUES, mutations
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from ngbkit import options, runs
from ngbkit.api import Sweep
from ngbkit.commands.runs import list_failures, list_runs
from ngbkit.errors import NgbkitError
from ngbkit.figures import accessor  # noqa: F401  registers `ds.ngb`
from ngbkit.runs.folders import build_metadata, read_sweep
from ngbkit.sweep import records
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.journal_file import compute_checksum
from ngbkit.sweep.trials import facts_key
from ngbkit.workloads.base import Workload

SWEEP = Sweep(
    [Workload(name=name, source="timm", spec={"name": name}) for name in ("a", "b")],
    ["identity", "openvino"],
    [1, 4],
    repeats=40,
)
RECORDS = {record.trial_id: record for record in synthetic.make_records(SWEEP, failures=0.2)}
NOTES = {
    "facts": {facts_key(name, {}): {"parameters": 1000, "baseline": "torch eager"} for name in ("a", "b")},
    "environment": {"cpu": {"chip": "Some chip", "threads": 2, "packages": {"numpy": "2.3"}}},
    "tuning": {trial_id: {"seconds": 1.5} for trial_id in list(RECORDS)[:2]},
    "retried": {"last": "0123"},
}
RUN_ID, SOUND_ID = "20260101-000000-abcd", "20260102-000000-abcd"
JOURNAL, LOG, METADATA = "journal.sqlite", "journal.sqlite-wal", "run.json"
_TABLES = {"results": 6, "notes": 4, "starts": 3}


@dataclass(frozen=True)
class Damage:
    """A change of a file: `where` and `size` are taken modulo its length."""

    kind: str
    where: int
    size: int = 1

    def apply(self, path: Path) -> None:
        content = bytearray(path.read_bytes()) if path.exists() else bytearray()
        if not content:
            return
        start = self.where % len(content)
        if self.kind == "flip":
            content[start] ^= 1 << (self.size % 8)
        elif self.kind == "cut":
            del content[start:]
        else:
            block = 1 << (self.size % 13)
            start -= start % block
            end = min(start + block, len(content))
            other = (start + block * (1 + self.size)) % max(1, len(content) - block)
            content[start:end] = bytes(end - start) if self.kind == "zero" else content[other : other + end - start]
        path.write_bytes(content)


@dataclass(frozen=True)
class Foreign:
    """A row that ngbkit did not write; with its checksum, as a hostile device could have had it written."""

    table: str
    row: tuple[Any, ...]
    is_checked: bool

    def apply(self, path: Path) -> None:
        row = (*self.row[:-1], compute_checksum(self.row[:-1])) if self.is_checked and self.row else self.row
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(f"INSERT OR REPLACE INTO {self.table} VALUES ({', '.join('?' * len(row))})", row)

    @property
    def key(self) -> Any:
        return self.row[1 if self.table == "notes" else 0]


def _is_storable(value: Any) -> bool:
    if isinstance(value, str):
        return value.isascii() or not any(0xD800 <= ord(character) < 0xE000 for character in value)
    return not isinstance(value, int) or -(2**63) <= value < 2**63


CELLS = (SCALARS | st.binary(max_size=40) | st.sampled_from([*RECORDS, "facts", "environment", "ok"])).filter(
    _is_storable
)
JSON_RECORDS = mutations([records.to_json(record) for record in RECORDS.values()])


def _split(data: Any) -> tuple[Any, ...]:
    """Build the row of a mutated record, as far as its samples are some."""
    fields = dict(data) if isinstance(data, dict) else {}
    trial_id = fields.get("trial_id") if fields.get("trial_id") in list(RECORDS) else next(iter(RECORDS))
    samples = [fields.pop("latency_s", ()), fields.pop("rounds", ())]
    blobs = []
    for values, kind in zip(samples, ("<f8", "<i4"), strict=True):
        try:
            blobs.append(np.asarray(values, kind).tobytes())
        except (TypeError, ValueError, OverflowError):
            blobs.append(b"\0" * 5)
    text = json.dumps(fields if isinstance(data, dict) else data)
    return trial_id, "ok" if "contract" in fields else "failed", text, *blobs, 0


DAMAGES = st.builds(
    Damage,
    st.sampled_from(("flip", "flip", "flip", "zero", "swap", "cut")),
    st.integers(0, 1 << 20),
    st.integers(0, 1 << 10),
)
ROWS = (
    st.builds(Foreign, st.just("results"), JSON_RECORDS.map(_split), st.just(True))
    | st.builds(
        Foreign,
        st.just("notes"),
        st.tuples(
            st.sampled_from(list(NOTES)),
            st.sampled_from([key for part in NOTES.values() for key in part]),
            VALUES.map(json.dumps),
            st.just(0),
        ),
        st.just(True),
    )
    | st.sampled_from(list(_TABLES)).flatmap(
        lambda table: st.builds(Foreign, st.just(table), st.tuples(*[CELLS] * _TABLES[table]), st.just(False))
    )
)
CASES = st.fixed_dictionaries(
    {
        "journal": st.lists(DAMAGES, max_size=3) | st.lists(DAMAGES, min_size=8, max_size=12),
        "log": st.lists(DAMAGES, max_size=1),
        "rows": st.lists(ROWS, max_size=2),
        "metadata": st.none() | DAMAGES | mutations([build_metadata(RUN_ID, SWEEP)]) | VALUES,
        "has_log": st.booleans(),
        "is_strict": st.booleans(),
    }
)


@functools.cache
def build_template() -> Path:
    """Build a state folder with a sound run and one to damage, the latter's journal in four forms, once a process."""
    state_dir = Path(tempfile.mkdtemp(prefix="ngbkit-fuzz-"))
    for run_id in (SOUND_ID, RUN_ID):
        folder = state_dir / "runs" / run_id
        folder.mkdir(parents=True)
        (folder / METADATA).write_text(json.dumps(build_metadata(run_id, SWEEP)))
        for is_strict in (True, False):
            path = folder / f"{'strict' if is_strict else 'loose'}.sqlite"
            with Journal(path) as journal:
                if not is_strict:
                    _loosen(journal)
                for kind, part in NOTES.items():
                    for key, value in part.items():
                        journal.note(kind, key, value)
                journal.start(list(RECORDS)[-2:], "load")
                half = len(RECORDS) // 2
                journal.finish(list(RECORDS.values())[:half])
                journal._file.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                journal.finish(list(RECORDS.values())[half:])
                # As a kill leaves it: the log has what the file lacks.
                for suffix in ("", "-wal"):
                    shutil.copyfile(f"{path}{suffix}", f"{path}.killed{suffix}")
    shutil.copyfile(state_dir / "runs" / SOUND_ID / "strict.sqlite", state_dir / "runs" / SOUND_ID / JOURNAL)
    return state_dir


def _loosen(journal: Journal) -> None:
    """Replace the tables by some without constraints, which take any row."""
    connection = journal._file.connection
    for table, columns in {
        "results": "trial_id, status, record, latency, rounds, checksum",
        "notes": "kind, key, value, checksum",
        "starts": "trial_id, phase, at",
    }.items():
        connection.execute(f"DROP TABLE {table}")
        connection.execute(f"CREATE TABLE {table} ({columns})")


def build_run(case: dict[str, Any], state_dir: Path) -> Path:
    """Build the state folder of a case, with one damaged run beside the sound one."""
    template = build_template()
    shutil.copytree(template / "runs" / SOUND_ID, state_dir / "runs" / SOUND_ID)
    folder = state_dir / "runs" / RUN_ID
    folder.mkdir(parents=True)
    shutil.copy(template / "runs" / RUN_ID / METADATA, folder)
    # Rows can be inserted only into a file that is sound so far.
    name = "strict" if case["is_strict"] and not case["rows"] else "loose"
    form = f"{name}.sqlite.killed" if case["has_log"] and not case["rows"] else f"{name}.sqlite"
    for suffix in ("", "-wal"):
        source = template / "runs" / RUN_ID / f"{form}{suffix}"
        if source.exists():
            shutil.copyfile(source, folder / f"{JOURNAL}{suffix}")
    for row in case["rows"]:
        row.apply(folder / JOURNAL)
    for damage in case["journal"]:
        damage.apply(folder / JOURNAL)
    for damage in case["log"]:
        damage.apply(folder / LOG)
    if isinstance(case["metadata"], Damage):
        case["metadata"].apply(folder / METADATA)
    elif case["metadata"] is not None:
        (folder / METADATA).write_text(json.dumps(case["metadata"]))
    return folder


def check_case(case: dict[str, Any], counts: Counter[str]) -> None:
    """Read a damaged run in every way; what is read was written, unless the case itself wrote it with its checksum."""
    with tempfile.TemporaryDirectory() as name, options.set_options(state_dir=name), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        folder = build_run(case, Path(name))
        forged = {row.key for row in case["rows"] if row.is_checked}
        assert SOUND_ID in {row["run"] for row in list_runs()}
        _attempt(lambda: _check_dataset(forged), counts)
        _attempt(lambda: list_failures(RUN_ID), counts)
        _attempt(lambda: _check_journal(folder / JOURNAL, forged, counts, writable=False), counts)
        _attempt(lambda: _check_journal(folder / JOURNAL, forged, counts, writable=True), counts)
        counts["cases"] += 1


def _attempt(check: Any, counts: Counter[str]) -> None:
    """An error of ngbkit's own is an answer."""
    try:
        check()
    except NgbkitError:
        counts["errors"] += 1


def _check_journal(path: Path, forged: set[Any], counts: Counter[str], writable: bool) -> None:
    with Journal(path, writable=writable) as journal:
        for record in journal.records():
            if record.trial_id not in forged:
                assert RECORDS[record.trial_id] == record
                counts["records"] += 1
        for trial_id, status in journal.statuses().items():
            assert trial_id in forged or RECORDS[trial_id].status == status
        for kind, part in NOTES.items():
            for key, value in journal.notes(kind).items():
                assert key in forged or part[key] == value
        journal.unfinished("load")
        if writable:
            _check_writing(journal, forged)


def _check_writing(journal: Journal, forged: set[Any]) -> None:
    """Whatever was damaged, a run can go on in its journal."""
    for record in list(RECORDS.values())[:2]:
        journal.finish([record])
    journal.note("retried", "last", "4567")
    again = {record.trial_id: record for record in journal.records()}
    assert all(again[record.trial_id] == record for record in list(RECORDS.values())[:2])
    assert journal.notes("retried")["last"] == "4567"


def _check_dataset(forged: set[Any]) -> None:
    sweep = read_sweep(runs.find(RUN_ID))
    data = runs.load_dataset(runs.find(RUN_ID))
    assert sweep.to_json() == SWEEP.to_json()
    for trial in SWEEP.trials():
        results = data.sel(
            device=trial.device, workload=trial.workload, compiler=trial.compiler, batch_size=trial.batch_size
        )
        expected, samples = RECORDS[trial.id], results["latency"].values
        if trial.id in forged or results["status"].item() == "pending":
            continue
        assert expected.status == results["status"].item()
        np.testing.assert_array_equal(samples[~np.isnan(samples)], getattr(expected, "latency_s", ()))


def run(cases: int, number: int) -> None:
    """Check that many damaged runs, and print how many records were read of them."""
    counts: Counter[str] = Counter()

    @seed(number)
    @settings(max_examples=cases, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(CASES)
    def check(case: dict[str, Any]) -> None:
        check_case(case, counts)

    try:
        check()
    finally:
        shutil.rmtree(build_template(), ignore_errors=True)
        build_template.cache_clear()
    print(
        f"journals: {counts['cases']} cases, {counts['records']} records read, none of them altered; "
        f"{counts['errors']} errors of ngbkit's own",
        flush=True,
    )
