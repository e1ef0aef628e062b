"""What tests look at from outside: the processes that work for a state folder, and what comes true in its own time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

Processes = Callable[..., list[psutil.Process]]


def find_processes(state_dir: Path, *words: str, but: int = 0) -> list[psutil.Process]:
    """The other live processes that work for that folder, those with all words in their command line, `but` one."""
    found = []
    for process in psutil.process_iter():
        try:
            ours = process.environ().get("NGBKIT_STATE_DIR") == str(state_dir)
            other = process.pid not in (os.getpid(), but) and process.status() != psutil.STATUS_ZOMBIE
            if ours and other and all(word in " ".join(process.cmdline()) for word in words):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def wait_until(true: Callable[[], Any], seconds: float = 60) -> None:
    """Wait for something that another process or thread brings about; it fails the test where it does not come."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
