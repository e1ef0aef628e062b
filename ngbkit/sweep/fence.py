"""The fence of a journal: a lock in a file beside it, which its only writer holds."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import TextIO

from ngbkit.errors import FencedError
from ngbkit.files import is_locked

# A glance at the lock holds it for a moment: a writer tries so often, with that pause.
_TRIES, _PAUSE_S = 5, 0.01


def take_fence(path: Path) -> TextIO:
    """Lock a journal for writing; FencedError if another process has."""
    fence = open(_locate(path), "a+", opener=lambda name, flags: os.open(name, flags, 0o600))  # noqa: SIM115
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
    return is_locked(_locate(path))


def _locate(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _lock(fence: TextIO) -> None:
    for _ in range(_TRIES):
        try:
            fcntl.flock(fence, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE_S)
        else:
            return
    fcntl.flock(fence, fcntl.LOCK_EX | fcntl.LOCK_NB)
