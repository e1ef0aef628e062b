"""Folders that go with the process that made them; where it was killed, the next one to make a folder removes them.

A state folder may be shared by the nodes of a cluster, and a process is looked for only on the machine that it is on.
"""

from __future__ import annotations

import os
import platform
import secrets
import shutil
from pathlib import Path

import psutil


def make(home: Path) -> Path:
    """A new folder below `home`, which only its owner can read; those of processes that have ended are removed."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    clean(home)
    folder = home / f"{os.getpid()}-{secrets.token_hex(4)}-{platform.node()}"
    folder.mkdir(mode=0o700)
    return folder


def clean(home: Path, ending: int | None = None) -> None:
    """Remove the folders of processes that have ended, and those of the one that is `ending`."""
    for folder in home.iterdir() if home.is_dir() else ():
        owner, _, rest = folder.name.partition("-")
        here = rest.partition("-")[2] == platform.node()
        if here and owner.isdigit() and (int(owner) == ending or not psutil.pid_exists(int(owner))):
            shutil.rmtree(folder, ignore_errors=True)
