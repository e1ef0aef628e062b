"""The contents of a device's state folder: live engines, journals with their records; and their removal."""

from __future__ import annotations

import fcntl
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from ngbkit.fleet.deployment.onsite.folder import (
    CLIENTS,
    MARK,
    OURS,
    Refused,
    find_engines,
    is_deployed,
    is_ours,
    list_names,
    lock,
    remove,
)


def list_contents(state_dir: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """List the engines, the records of each run, and the entries of a folder that is not ngbkit's."""
    del request
    if not is_ours(state_dir):
        empty: dict[str, Any] = {"engines": [], "measuring": [], "unread": [], "records": {}, "shared": False}
        return {**empty, "state_dir": str(state_dir), "foreign": list_names(state_dir)}
    records: dict[str, list[str]] = {}
    unread, measuring = [], []
    journals = {journal: journal.stem for journal in state_dir.glob("devices/*/*.sqlite")}
    # Those of a job array's indices are in a folder of their run.
    journals |= {journal: journal.parent.name for journal in state_dir.glob("devices/*/*/*.sqlite")}
    for journal, run_id in sorted(journals.items()):
        if _is_locked(journal.with_name(journal.name + ".lock")):
            measuring.append(run_id)
        try:
            records.setdefault(run_id, []).extend(_read_trial_ids(journal))
        except (sqlite3.Error, UnicodeDecodeError) as error:  # of a message that quotes damaged bytes
            unread.append(f"{journal} ({error})")
    return {
        "state_dir": str(state_dir),
        "engines": find_engines(state_dir),
        "records": records,
        "measuring": measuring,
        "unread": unread,
        "foreign": [],
        "shared": any((state_dir / name).is_dir() for name in CLIENTS),
    }


def clear(state_dir: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Remove all of ngbkit's entries, or with ``only_env`` the deployed environment alone."""
    if not state_dir.is_dir():
        return {"removed": [], "left": []}
    only_env = request["only_env"]
    removed = []
    with lock(state_dir):
        if not is_ours(state_dir):
            raise Refused(f"{state_dir} has no mark of ngbkit any more")
        engines = [
            engine
            for engine in find_engines(state_dir)
            if engine["host"] is None and (engine["in_env"] or not only_env)
        ]
        if engines:
            raise Refused(f"an engine has just started ({engines[0]['label']}): end it, and try again")
        has_env = is_deployed(state_dir)
        for pattern in ("env", "wheels", "downloads") if only_env else OURS:
            for path in sorted(state_dir.glob(pattern)):
                if has_env or path.name != "env":
                    remove(path)
                    removed.append(path.name)
        if only_env:
            (state_dir / MARK).write_bytes(b"")
        else:
            (state_dir / MARK).unlink()
    if not only_env:
        with suppress(OSError):
            state_dir.rmdir()
    return {"removed": removed, "left": list_names(state_dir)}


def _read_trial_ids(journal: Path) -> list[str]:
    """Read the ids of a journal's recorded trials; a journal that was never begun has none."""
    with closing(sqlite3.connect(journal, timeout=30)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'results'").fetchone():
            return []
        return [trial_id for (trial_id,) in connection.execute("SELECT trial_id FROM results")]


def _is_locked(path: Path) -> bool:
    """Return whether a process writes to the journal of that lock."""
    with suppress(FileNotFoundError), open(path, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
