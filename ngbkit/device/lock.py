"""The locks of a device and of its cores: one plan at a time, since two would disturb each other.

Devices of one machine are devices of their own (its CPU, each of its GPUs), and take turns where their cores overlap.
"""

from __future__ import annotations

import fcntl
import os
import platform
import select
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ngbkit.files import locate_usable

_RETRY_S = 0.5


@contextmanager
def acquire_cores(
    folder: Path, cores: Iterable[int], owner: str, interrupt: int, report_wait: Callable[[str], None]
) -> Iterator[None]:
    """Lock cores of this machine for the block, as `acquire_lock`; the same order for all keeps two from a deadlock."""
    with ExitStack() as locks:
        for core in sorted(cores):
            locks.enter_context(acquire_lock(locate_core(folder, core), owner, interrupt, report_wait))
        yield


def locate_core(folder: Path, core: int) -> Path:
    """Locate the lock of a core; machines that share a file system share no cores."""
    return folder / f"{platform.node()}.{core}"


@contextmanager
def acquire_lock(path: Path, run_id: str, interrupt: int, report_wait: Callable[[str], None]) -> Iterator[None]:
    """Lock a device for the block, waiting for the current holder; the kernel releases the lock when its holder ends.

    `report_wait` is called once, with a description of the holder, before a wait; the file descriptor `interrupt`,
    once readable, ends the wait with InterruptedError.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = locate_usable(path)
    with open(path, "a+", opener=lambda name, flags: os.open(name, flags, 0o600)) as lock:
        is_reported = False
        while not _try_lock(lock.fileno(), path):
            if not is_reported:
                lock.seek(0)
                report_wait(lock.read(200).strip() or "another run")
                is_reported = True
            if select.select([interrupt], [], [], _RETRY_S)[0]:
                raise InterruptedError("stopped while it waited for the device")
        lock.truncate(0)
        lock.write(f"run {run_id} (process {os.getpid()})")
        lock.flush()
        yield


def _try_lock(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # a file system without locks
        error.filename = str(path)
        raise
    return True
