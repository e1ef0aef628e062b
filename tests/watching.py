"""Observation from outside: the processes of a state folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import psutil

Processes = Callable[..., list[psutil.Process]]


def find_processes(state_dir: Path, *words: str, but: int = 0) -> list[psutil.Process]:
    """Find the other live processes of that folder with all words in their command line, except process `but`."""
    processes = []
    for process in psutil.process_iter():
        try:
            is_ours = process.environ().get("NGBKIT_STATE_DIR") == str(state_dir)
            is_other = process.pid not in (os.getpid(), but) and process.status() != psutil.STATUS_ZOMBIE
            if is_ours and is_other and all(word in " ".join(process.cmdline()) for word in words):
                processes.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return processes
