"""A process that ends with another one, however that one ends."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import threading
import time
from collections.abc import Callable

import psutil

_PR_SET_PDEATHSIG = 1


def end_with(pid: int, before: Callable[[], None] | None = None) -> None:
    """End this process and its whole group as soon as process `pid` has ended; waiting for that costs no CPU time.

    Parameters
    ----------
    pid
        The process to end with; it need not be a parent.
    before
        Called first, on a thread of its own: removes what this process leaves.
    """
    threading.Thread(target=_wait_and_end, args=(pid, before), name="ngbkit-watch", daemon=True).start()


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends. Linux only, and only for the process that asks."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def end_group() -> None:
    """Kill this process, and with it its group where it leads one."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def wait(pid: int) -> None:
    """Block until process `pid`, which need not be a child, has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):  # a kernel before 5.3
        while psutil.pid_exists(pid):
            time.sleep(1)
        return
    try:
        select.select([handle], [], [])
    finally:
        os.close(handle)


def _wait_and_end(pid: int, before: Callable[[], None] | None) -> None:
    wait(pid)
    if before is not None:
        before()
    end_group()
