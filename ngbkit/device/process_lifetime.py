"""Processes that end with another process, however that one ends."""

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


def end_with(pid: int, cleanup: Callable[[], None] | None = None) -> None:
    """End this process and its whole group as soon as process `pid` ends, after calling `cleanup` on another thread.

    The process need not be a parent, and the wait costs no CPU time.
    """
    threading.Thread(target=_wait_and_end, args=(pid, cleanup), name="ngbkit-watch", daemon=True).start()


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends. Linux only, and not inherited by children."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def end_group() -> None:
    """Kill this process, and its group if it leads one."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for_end(pid: int) -> None:
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


def _wait_and_end(pid: int, cleanup: Callable[[], None] | None) -> None:
    wait_for_end(pid)
    if cleanup is not None:
        cleanup()
    end_group()
