"""A device's folder: what in it is ngbkit's, who has it for himself, which engines live there."""

from __future__ import annotations

import json
import os
import platform
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

# All that ngbkit ever writes into a device's folder; nothing else there is ever removed.
OURS = (
    *("env", "engines", "devices", "artifacts", "incoming", "cache", "tuning", "scratch", "clusters", "selfcheck"),
    *("wheels", "downloads", "peaks.*"),
)
# What a client keeps: where these are, the folder is not the device's alone.
CLIENTS = ("runs", "wheelhouses")
LOCK, MARK = "lock", ".ngbkit"
# What makes an engine or a lock says within seconds whose it is; what has not after so long is nobody's.
_MAKING_S = 60.0


class Refused(Exception):
    """It cannot be done; the message says why, and what to do."""


def locate(given: str | None) -> Path:
    """The device's folder: the one that is named, or the one that `ngbkit.options.state_dir` picks here."""
    chosen = given or os.environ.get("NGBKIT_STATE_DIR")
    base = os.environ.get("XDG_STATE_HOME")
    default = (Path(base) if base else Path.home() / ".local" / "state") / "ngbkit"
    found = Path(chosen).expanduser().absolute() if chosen else default
    if found == Path.home() or found in Path.home().parents:
        raise Refused(f"{found} cannot be ngbkit's own folder: name another as `state_dir` in the devices file")
    return found


def foreign(state_dir: Path) -> list[str]:
    """What is not ngbkit's in the folder. Hidden files, of a file system or of an editor, are passed over."""
    known = (*OURS, *CLIENTS, LOCK, f"{LOCK}.*")
    found = (path for path in state_dir.iterdir() if not path.name.startswith("."))
    return sorted(path.name for path in found if not any(path.match(pattern) for pattern in known))


def some(names: Sequence[str]) -> str:
    """The first few names."""
    return ", ".join(names[:5]) + (f", … ({len(names)} in all)" if len(names) > 5 else "")


def remove(path: Path) -> None:
    """Remove a file, a folder, or a link and not what it leads to; nothing where there is nothing."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


@contextmanager
def locked(state_dir: Path) -> Iterator[None]:
    """Have the folder for oneself; refuses where another one has it, and passes over one that has ended."""
    lock = state_dir / LOCK
    me = {"host": platform.node(), "pid": os.getpid(), "started": _started(os.getpid())}
    try:
        lock.mkdir(mode=0o700)
    except FileExistsError:
        if not _is_stale(lock):
            holder = "process {pid} on {host}".format(**{"pid": "?", "host": platform.node(), **_holder(lock)})
            raise Refused(
                f"another deploy or undeploy is at work there ({holder}): wait for it. Where there is none, remove "
                f"{lock} on that machine"
            ) from None
        # Whoever moves it first has it; another one finds it gone.
        aside = state_dir / f"{LOCK}.{os.getpid()}"
        try:
            lock.rename(aside)
            lock.mkdir(mode=0o700)
        except (FileNotFoundError, FileExistsError):
            raise Refused("another deploy or undeploy has just begun there: wait for it") from None
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    try:
        (lock / "holder.json").write_text(json.dumps(me))
        yield
    finally:
        shutil.rmtree(lock, ignore_errors=True)


def engines(state_dir: Path) -> list[dict[str, Any]]:
    """The engines that live there: ``label``, ``pid``, ``host``, and whether they run ``in_env`` that deploy made.

    An engine of another machine with the same home folder cannot be looked at from here, and is taken to live.
    """
    found: list[dict[str, Any]] = []
    for folder in sorted(state_dir.glob("engines/*")):
        try:
            about = json.loads((folder / "about.json").read_text())
        except (OSError, ValueError):
            # A folder's time is that of the last file made in it.
            if time.time() - folder.stat().st_mtime < _MAKING_S:
                found.append({"label": "one that is being started", "pid": None, "host": None, "in_env": True})
            continue
        host = about.get("host", platform.node())
        away = host != platform.node()
        if away or _is_engine(about):
            in_env = away or _program(about["pid"]).is_relative_to(state_dir / "env")
            found.append(
                {"label": about["label"], "pid": about["pid"], "host": host if away else None, "in_env": in_env}
            )
    return found


def _is_stale(lock: Path) -> bool:
    holder = _holder(lock)
    if not holder:
        with suppress(FileNotFoundError):
            return time.time() - lock.stat().st_mtime > _MAKING_S
        return True
    # What another machine with the same home folder does cannot be seen from here.
    return bool(holder["host"] == platform.node() and _started(holder["pid"]) != holder["started"])


def _holder(lock: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        found: dict[str, Any] = json.loads((lock / "holder.json").read_text())
        return found
    return {}


def _started(pid: int) -> int | None:
    """When a process started, in the kernel's ticks since the boot; None where it has ended."""
    with suppress(OSError, ValueError):
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(rest[18]) if state not in "ZX" else None
    return None


def _is_engine(about: Mapping[str, Any]) -> bool:
    """Whether an engine's process is there, and not another one that has its number by now."""
    ticks = _started(about["pid"])
    if ticks is None:
        return False
    (booted,) = (line.split()[1] for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
    return bool(abs(int(booted) + ticks / os.sysconf("SC_CLK_TCK") - about["started"]) < 2)


def _program(pid: int) -> Path:
    """What a process was started as."""
    with suppress(OSError):
        return Path(os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]))
    return Path()
