"""A device's state folder: its ngbkit entries, its lock, its live engines, its records; and their removal."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

# All that ngbkit ever writes to a device's folder; nothing else there is ever removed.
OURS = (
    *("env", "engines", "devices", "cores", "artifacts", "incoming", "cache", "tuning", "scratch", "clusters"),
    *("manifests", "selfcheck", "wheels", "downloads", "peaks.*", "hosts.*", "environments", "releases"),
)
# The folders of a client: a folder with any of these is not the device's alone.
CLIENTS = ("runs", "bisections", "capacities", "wheelhouses")
LOCK, MARK = "lock", ".ngbkit"
# The content of the mark after a deploy; that of a folder which a run created is empty.
DEPLOYED = b"env\n"
# The creator of an engine's folder or of a lock names itself within seconds; an older one without a name is abandoned.
_CREATION_S = 60.0


class Refused(Exception):
    """A request is refused; the message has the reason and the remedy."""


def locate(path: str | None) -> Path:
    """Return the device's folder: the given one, or here `ngbkit.options.get_state_dir`."""
    chosen = path or os.environ.get("NGBKIT_STATE_DIR")
    base = os.environ.get("XDG_STATE_HOME")
    try:
        home = Path.home()
    except RuntimeError:
        home = Path("/")
        if not chosen and not base:
            raise Refused("this user has no home folder: name a `state_dir` in the devices file") from None
    default = (Path(base) if base else home / ".local" / "state") / "ngbkit"
    folder = Path(chosen).expanduser().absolute() if chosen else default
    if folder == home or folder in home.parents:
        raise Refused(f"{folder} cannot be ngbkit's state folder: name another as `state_dir` in the devices file")
    return folder


def is_ours(state_dir: Path) -> bool:
    """Return whether ngbkit created the folder: only a mark of its own proves it, since others have a ``cache`` too."""
    return (state_dir / MARK).is_file()


def is_deployed(state_dir: Path) -> bool:
    """Return whether a deploy has claimed the environment in the folder."""
    return is_ours(state_dir) and (state_dir / MARK).read_bytes() == DEPLOYED


def list_names(state_dir: Path) -> list[str]:
    """List the entries of the folder, but not the lock nor hidden files of a file system or an editor."""
    if not state_dir.is_dir():
        return []
    names = (path.name for path in state_dir.iterdir())
    return sorted(name for name in names if not name.startswith(".") and name.partition(".")[0] != LOCK)


def join_names(names: Sequence[str]) -> str:
    """Join the first few names."""
    return ", ".join(names[:5]) + (f", … ({len(names)} in all)" if len(names) > 5 else "")


def remove(path: Path) -> None:
    """Remove a file, a folder, or a link but not its target; ignore a missing path."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


@contextmanager
def lock(state_dir: Path) -> Iterator[None]:
    """Lock the folder; replace the lock of a process that has ended, and refuse a live process's lock."""
    path = state_dir / LOCK
    holder = {"host": platform.node(), "pid": os.getpid(), "started": _read_start(os.getpid())}
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not _is_stale(path):
            name = "process {pid} on {host}".format(**{"pid": "?", "host": platform.node(), **_read_holder(path)})
            raise Refused(
                f"another deploy or removal runs there ({name}): wait for it. If there is none, remove {path} on that "
                "machine"
            ) from None
        # The first process that moves it wins; the others find it gone.
        aside = state_dir / f"{LOCK}.{os.getpid()}"
        try:
            path.rename(aside)
            path.mkdir(mode=0o700)
        except (FileNotFoundError, FileExistsError):
            raise Refused("another deploy or removal has just started there: wait for it") from None
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    try:
        (path / "holder.json").write_text(json.dumps(holder))
        yield
    finally:
        shutil.rmtree(path, ignore_errors=True)


def find_engines(state_dir: Path) -> list[dict[str, Any]]:
    """Find the engines that live, or may on another machine: ``label``, ``pid``, ``host``, ``folder``, ``in_env``."""
    engines: list[dict[str, Any]] = []
    for folder in sorted(state_dir.glob("engines/*")):
        try:
            engine = json.loads((folder / "about.json").read_text())
            host, is_live = engine.get("host", platform.node()), _is_engine(engine)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            # A folder's time is that of its newest file.
            if time.time() - folder.stat().st_mtime < _CREATION_S:
                name = "one that is starting"
                engines.append({"label": name, "pid": None, "host": None, "folder": str(folder), "in_env": True})
            continue
        is_remote = host != platform.node()
        if is_remote or is_live:
            in_env = is_remote or _read_program(engine["pid"]).is_relative_to(state_dir / "env")
            host = host if is_remote else None
            label, pid = str(engine.get("label")), engine.get("pid")
            engines.append({"label": label, "pid": pid, "host": host, "folder": str(folder), "in_env": in_env})
    return engines


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


def _is_stale(path: Path) -> bool:
    holder = _read_holder(path)
    if not holder:
        with suppress(FileNotFoundError):
            return time.time() - path.stat().st_mtime > _CREATION_S
        return True
    # A process of another machine with the same home folder cannot be checked from here.
    return bool(holder["host"] == platform.node() and _read_start(holder["pid"]) != holder["started"])


def _read_holder(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError, TypeError, RecursionError):
        holder = dict(json.loads((path / "holder.json").read_text()))
        return holder if {"host", "pid", "started"} <= {*holder} else {}
    return {}


def _read_start(pid: int) -> int | None:
    """Read when a process started, in the kernel's ticks since the boot; None if it has ended."""
    with suppress(OSError, ValueError):
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[18]) if state not in "ZX" else None
    return None


def _is_engine(engine: Mapping[str, Any]) -> bool:
    """Return whether an engine's process lives, and its id does not belong to another process by now."""
    ticks = _read_start(engine["pid"])
    if ticks is None:
        return False
    (booted,) = (line.split()[1] for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
    return bool(abs(int(booted) + ticks / os.sysconf("SC_CLK_TCK") - engine["started"]) < 2)


def _read_program(pid: int) -> Path:
    """Read the program that a process was started with."""
    with suppress(OSError):
        return Path(os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]))
    return Path()


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
