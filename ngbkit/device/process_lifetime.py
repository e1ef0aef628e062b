"""Processes that end with another process, however that one ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Collection

import psutil

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
# An ended process may have forked others meanwhile: so long they are looked for.
_SEARCH_S, _PAUSE_S = 1.0, 0.01
# Set once this process ends the processes that it started, and then itself.
_ending = threading.Event()


def end_with(pid: int, cleanup: Callable[[], None] | None = None) -> None:
    """End this process and its group as soon as any process `pid` ends, after calling `cleanup` on another thread."""
    threading.Thread(target=_wait_and_end, args=(pid, cleanup), name="ngbkit-watch", daemon=True).start()


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends. Linux only, and not inherited by children."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Have Linux make this process, and not init, the parent of its descendants whose own parent ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_children(spared: Collection[int] = ()) -> None:
    """Kill and reap the children of this process, but not the `spared` ones, and the orphans that it adopts thereby."""
    deadline = time.monotonic() + _SEARCH_S
    while time.monotonic() < deadline:
        children = [child for child in psutil.Process().children() if child.pid not in spared]
        if not children:
            return
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, os.WNOHANG)
        time.sleep(_PAUSE_S)


def end_marked(variable: str, value: str) -> None:
    """Kill the other processes of this user that were started with this variable in their environment."""
    deadline = time.monotonic() + _SEARCH_S
    while time.monotonic() < deadline:
        processes = [process for process in psutil.process_iter() if _is_marked(process, variable, value)]
        if not processes:
            return
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(_PAUSE_S)


def _is_marked(process: psutil.Process, variable: str, value: str) -> bool:
    try:
        is_other = process.pid != os.getpid() and process.uids().real == os.getuid()
        return is_other and process.environ().get(variable) == value and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, OSError):
        return False


def announce_end() -> None:
    """Announce that this process ends those that it started, and then itself: see `hold_if_ending`."""
    _ending.set()


def hold_if_ending() -> None:
    """Block until this process has ended, if it is about to: a child that it ends itself has not crashed."""
    if _ending.is_set():
        threading.Event().wait()


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
