"""A small block of convolutions to measure against itself, and what keeps a core busy beside it.

This file is a cell: it travels as source and is executed by each child that builds the network. Nothing imports it.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from torch import nn

WIDTH, DEPTH, SIDE = 32, 2, 56
input_shape = (WIDTH, SIDE, SIDE)

# The kernel ends it with the child that started it, however that one ends (PR_SET_PDEATHSIG).
_BUSY = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
while os.getppid() == int(sys.argv[1]):
    for _ in range(1_000_000):
        pass
"""
_TAKEN_S = 5.0
_busy: list[subprocess.Popen[bytes]] = []


def model(replicate: int, hog: int = 0) -> nn.Module:  # noqa: ARG001  it only makes each group one of its own
    """Convolution, batch normalisation and ReLU, twice; with `hog`, one busy process beside the group."""
    if hog:
        start_hog()
    return nn.Sequential(
        *(nn.Sequential(nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.BatchNorm2d(WIDTH), nn.ReLU()) for _ in range(DEPTH))
    )


def start_hog() -> None:
    """Start a process that never waits, unless a sibling of this child has one running already."""
    path = Path(tempfile.gettempdir()) / "ngbkit-hog.lock"
    deadline = time.monotonic() + _TAKEN_S
    with open(path, "a+") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                lock.seek(0)
                if _is_alive(lock.read()) or time.monotonic() > deadline:
                    return
                time.sleep(0.01)  # the one that had it has just ended, and its busy process is about to
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        command = [sys.executable, "-S", "-c", _BUSY, str(os.getpid())]
        # It inherits the lock, which is free again as soon as it is gone.
        _busy.append(subprocess.Popen(command, pass_fds=[lock.fileno()], stdin=subprocess.DEVNULL))


def _is_alive(pid: str) -> bool:
    with suppress(ValueError, ProcessLookupError):
        os.kill(int(pid), 0)
        return True
    return False
