"""One plan at a time on a device: two that measured side by side would disturb each other, and neither would know."""

from __future__ import annotations

import fcntl
import os
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_AGAIN_S = 0.5


@contextmanager
def occupied(path: Path, run_id: str, interrupt: int, wait: Callable[[str], None]) -> Iterator[None]:
    """Have the device for oneself as long as the block lasts; wait until whoever has it has let go.

    Parameters
    ----------
    path
        The lock of the device; the kernel lets go of it when its holder ends, however that ends.
    run_id
        Who has it, for those who wait.
    interrupt
        A file descriptor that becomes readable when the wait is to end: InterruptedError is raised then.
    wait
        Called once with what is waited for, in words, where the device is not free.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(path, "a+", opener=lambda name, flags: os.open(name, flags, 0o600)) as lock:
        told = False
        while not _taken(lock.fileno()):
            if not told:
                lock.seek(0)
                wait(lock.read(200).strip() or "another run")
                told = True
            if select.select([interrupt], [], [], _AGAIN_S)[0]:
                raise InterruptedError("stopped while it waited for the device")
        lock.truncate(0)
        lock.write(f"run {run_id} (process {os.getpid()})")
        lock.flush()
        yield


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
