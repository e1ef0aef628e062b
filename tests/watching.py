"""What tests look at from outside: the processes that work for a state folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

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
