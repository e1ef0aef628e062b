"""What lies in a device's folder: engines that live, records that were measured; and its removal."""

from __future__ import annotations

import fcntl
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from ngbkit.cluster.deployment.onsite.folder import CLIENTS, MARK, OURS, Refused, engines, foreign, locked, remove

# The signs of a folder that an engine has used, on a device that nothing was deployed to.
_SIGNS = ("devices", "engines", "artifacts", "scratch")


def hold(state_dir: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """What is there: engines, the records of each run, and what is anybody else's."""
    del request
    records: dict[str, list[str]] = {}
    unread, measuring = [], []
    for journal in sorted(state_dir.glob("devices/*/*.sqlite")):
        if _is_held(journal.with_name(journal.name + ".lock")):
            measuring.append(journal.stem)
        try:
            records.setdefault(journal.stem, []).extend(_trial_ids(journal))
        except sqlite3.Error as error:
            unread.append(f"{journal} ({error})")
    here = state_dir.is_dir()
    marked = (state_dir / MARK).exists()
    return {
        "state_dir": str(state_dir),
        "engines": engines(state_dir),
        "records": records,
        "measuring": measuring,
        "unread": unread,
        "foreign": foreign(state_dir) if here and not marked else [],
        "ours": marked or any((state_dir / sign).is_dir() for sign in _SIGNS),
        "shared": any((state_dir / name).is_dir() for name in CLIENTS),
    }


def clear(state_dir: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Remove what is ngbkit's: all of it, or with ``only_env`` the environment that was deployed."""
    if not state_dir.is_dir():
        return {"removed": [], "left": []}
    only_env = request["only_env"]
    removed = []
    with locked(state_dir):
        alive = [one for one in engines(state_dir) if one["host"] is None and (one["in_env"] or not only_env)]
        if alive:
            raise Refused(f"an engine has started meanwhile ({alive[0]['label']}): end it, and try again")
        marked = (state_dir / MARK).exists()
        for pattern in ("env", "wheels", "downloads") if only_env else OURS:
            for path in sorted(state_dir.glob(pattern)):
                # Without the mark it was not deploy that made it.
                if marked or path.name != "env":
                    remove(path)
                    removed.append(path.name)
        (state_dir / MARK).unlink(missing_ok=True)
    if not only_env:
        with suppress(OSError):
            state_dir.rmdir()
    return {"removed": removed, "left": sorted(path.name for path in state_dir.glob("*"))}


def _trial_ids(journal: Path) -> list[str]:
    """The trials that a journal has a record of; none in one that was never begun."""
    with closing(sqlite3.connect(journal, timeout=30)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'results'").fetchone():
            return []
        return [trial_id for (trial_id,) in connection.execute("SELECT trial_id FROM results")]


def _is_held(lock: Path) -> bool:
    """Whether somebody writes to the journal of that lock."""
    with suppress(FileNotFoundError), open(lock, "r+") as fence:
        try:
            fcntl.flock(fence, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
