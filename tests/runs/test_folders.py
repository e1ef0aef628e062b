"""Folders of runs: a damaged one is an error of its own, and is in nobody's way."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic
from journalled import store_run
from synthetic_records import build_network

from ngbkit import cli, runs
from ngbkit.api import Sweep
from ngbkit.commands.runs import list_runs
from ngbkit.errors import JournalError
from ngbkit.notebook.display import Snapshot
from ngbkit.runs.folders import FORMAT, build_metadata, load_metadata, read_sweep
from ngbkit.runs.progress_display import describe, list_warnings
from ngbkit.runs.run import Run
from ngbkit.sweep.journal import Journal
from ngbkit.tabular import Texts
from ngbkit.workloads.base import hash_json

SWEEP = Sweep([build_network("net")], ["identity", "openvino"], [1, 4], repeats=5)


def make_run(run_id: str, metadata: bytes | None = None) -> Path:
    """Store a run, with this content of run.json."""
    folder = store_run(run_id, SWEEP)
    if metadata is not None:
        (folder / "run.json").write_bytes(metadata)
    return folder


def double_a_sample(path: Path) -> None:
    """Flip the one bit that doubles the first sample of a record."""
    content, sample = path.read_bytes(), np.float64(synthetic.make_records(SWEEP)[0].latency_s[0])
    path.write_bytes(content.replace(sample.tobytes(), (2 * sample).tobytes(), 1))


def change(**fields: Any) -> bytes:
    """The metadata of a run with other fields, and their hash."""
    metadata = {"format": FORMAT, "id": "b", "created": 0, "sweep": SWEEP.to_json(), **fields}
    return json.dumps({**metadata, "hash": hash_json(metadata)}).encode()


@contextmanager
def in_zone(name: str) -> Iterator[None]:
    """Set the time zone of this process within the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", name)
        time.tzset()
        yield
    time.tzset()


DAMAGED = {
    "a list": b"[]",
    "nested": b"[" * 100_000,
    "empty": b"",
    "bytes": b"\xff\xfe",
    "null": b"null",
    "a late date": change(created=1e300),
    "no date": change(created=None),
    "an id that leads elsewhere": change(id="../other"),
    "an id that is null": change(id=None),
    "a sweep that is a list": change(sweep=[]),
    "a sweep without workloads": change(sweep={}),
    "a workload that is a number": change(sweep={**SWEEP.to_json(), "workloads": [3]}),
    "a format that is a text": change(format="1"),
    "no hash": json.dumps({"format": FORMAT, "id": "b", "created": 0, "sweep": SWEEP.to_json()}).encode(),
    "a newer format": change(format=FORMAT + 1),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_run_is_an_error_of_its_own(content: bytes) -> None:
    """The others are listed, the latest first, with a warning that names it."""
    for name in ("a", "c"):
        make_run(name)
    folder = make_run("b", content)

    with pytest.warns(UserWarning, match="left out a run: .*run b"):
        assert ["c", "a"] == [row["run"] for row in list_runs()]
    with pytest.raises(JournalError, match="run b"):
        read_sweep(folder)


@pytest.mark.parametrize("created", [1792888200, 1792891800], ids=["summer", "winter"])
def test_the_latest_run_comes_first(created: float) -> None:
    """The list of runs is sorted by moment, whatever the clock of its zone showed."""
    for run_id, moment in (("20261027-120000-ab", created - 60), ("20261025-023000-cd", created)):
        make_run(run_id, change(id=run_id, created=moment))
    with in_zone("Europe/Berlin"):
        rows = list_runs()

    assert ["20261025-023000-cd", "20261027-120000-ab"] == [row["run"] for row in rows]
    assert {1792888200: "2026-10-25 02:30:00 +0200", 1792891800: "2026-10-25 02:30:00 +0100"}[int(created)] == rows[0][
        "created"
    ]


def test_the_id_of_a_run_is_its_start_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids of all zones sort by the moment, as datasets do that are merged."""
    monkeypatch.setattr(Run, "_begin", lambda run: run)
    with in_zone("Pacific/Kiritimati"):
        run = runs.start(SWEEP)
    run._journal.close()
    started = datetime.strptime(f"{run.id[:15]} +0000", "%Y%m%d-%H%M%S %z")

    assert pytest.approx(load_metadata(run.folder)["created"], abs=60) == started.timestamp()


def test_a_run_that_has_finished_is_not_stopped() -> None:
    """A stop that comes while its last files are written changes nothing."""
    run = Run(SWEEP, "a", make_run("a"), (), {})
    run._state = "finished"
    run.stop()
    run._journal.close()

    assert "finished" == run.state


def test_a_shell_warns_of_a_damaged_run_in_one_line(state_dir: Path) -> None:
    """A shell prints the warning of a damaged run on one line, without its source code."""
    make_run("a")
    make_run("b", b"[]")
    command = [sys.executable, "-c", "from ngbkit import cli; cli.main(['runs'])"]
    environment = {**os.environ, "NGBKIT_STATE_DIR": str(state_dir)}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)

    assert process.stderr.startswith("ngbkit: warning: left out a run: the run.json of run b cannot be read")
    assert 1 == len(process.stderr.splitlines())


def test_metadata_that_were_changed_are_refused() -> None:
    """Changed metadata of a run are refused, even if they are valid."""
    metadata = build_metadata("a", SWEEP)
    metadata["sweep"]["batch_sizes"] = [1, 5]
    folder = make_run("a", json.dumps(metadata).encode())

    with pytest.raises(JournalError, match=r"run\.json of run a is not as it was written\. Restore it"):
        read_sweep(folder)


def test_metadata_are_loaded_as_they_were_built() -> None:
    """The metadata of a run are loaded with its id and its sweep."""
    folder = make_run("a")

    assert "a" == load_metadata(folder)["id"]
    assert SWEEP.to_json() == read_sweep(folder).to_json()


def test_a_damaged_journal_is_resumed_with_a_warning() -> None:
    """A resumed run recovers its damaged journal and warns of it."""
    folder = make_run("a")
    double_a_sample(folder / "journal.sqlite")
    run = Run(SWEEP, "a", folder, (), {})
    (warning,) = list_warnings(run)
    run._journal.close()

    assert warning.startswith("journal: it was damaged; 3 of its records were recovered")
    assert 3 == len(run.statuses)


def test_other_work_is_reported_of_a_run_that_is_opened_again(capsys: pytest.CaptureFixture[str]) -> None:
    """A run that is opened again reports the other work of its last observation."""
    folder = make_run("a")
    warning = "other work uses 100 % of all cores (stress): end it"
    conditions = {"other_busy_percent": 99.6, "busiest": ["stress"], "warnings": [warning]}
    with Journal(folder / "journal.sqlite") as journal:
        journal.note("environment", "cpu", {"conditions": conditions})
    run = Run(SWEEP, "a", folder, (), {})
    run._journal.close()
    (row,) = list_runs()

    assert [f"cpu: {warning}"] == list_warnings(run)
    assert describe(run).endswith("; other work uses 100 % of all cores (stress)")
    assert "other work used 100 % of all cores (stress)" in repr(Snapshot(run, run.dataset(), 0.0))
    assert 0 == cli.main(["show", "a"])
    assert "other work used 100 % of all cores (stress)" in capsys.readouterr().out
    assert {"cpu": 100} == row["other_work_percent"]
    assert "cpu 100" in Texts.of_rows([row]).to_text()


def test_other_work_is_reported_while_it_lasts() -> None:
    """The run reports the other work of the device's start, then of the latest trial."""
    folder = make_run("a")
    run = Run(SWEEP, "a", folder, (), {})
    states = []
    value = {"conditions": {"other_busy_percent": 46.0, "busiest": ["stress"]}}
    run._on_events([{"kind": "environment", "device": "cpu", "key": "cpu", "value": value}])
    for share in (30.0, 1.0):
        states.append(run.progress.other_work)
        record = replace(synthetic.make_records(SWEEP)[0], foreign_percent=share)
        run._on_events([{"kind": "record", "device": "cpu", "record": record}])
    run._journal.close()

    assert ["46 % of all cores (stress)", "30 % of all cores", ""] == [*states, run.progress.other_work]


def test_a_damaged_journal_is_shown_with_a_warning() -> None:
    """The dataset of a damaged journal has a warning, and the file stays unchanged."""
    folder = make_run("a")
    double_a_sample(folder / "journal.sqlite")
    copy = shutil.copy(folder / "journal.sqlite", folder / "copy")

    with pytest.warns(UserWarning, match=r"a damaged entry.*`!?ngbkit runs --resume` measures them"):
        data = runs.load_dataset(folder)
    assert {"ok", "pending"} == set(data["status"].values.ravel())
    assert Path(copy).read_bytes() == (folder / "journal.sqlite").read_bytes()
