"""Processes that end with another one, and the end of those that a process has left behind."""

from __future__ import annotations

import os
import subprocess
import sys

from ngbkit.device import process_lifetime


def test_waiting_for_a_process_ends_when_it_does() -> None:
    """The wait for a process ends with it, and returns at once if it has ended."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.2)"])
    process_lifetime.wait_for_end(process.pid)
    process.wait()
    process_lifetime.wait_for_end(process.pid)

    assert 0 == process.returncode


def test_marked_processes_are_ended() -> None:
    """Every process with the mark is ended in any session, and no other process."""
    sleep = ["sleep", "600"]
    marked, other = (
        subprocess.Popen(sleep, start_new_session=True, env={**os.environ, "NGBKIT_TESTED": value})
        for value in ("/folder/1", "/folder/12")
    )
    process_lifetime.end_marked("NGBKIT_TESTED", "/folder/1")
    code, is_alive = marked.wait(), other.poll() is None
    other.kill()
    other.wait()

    assert -9 == code
    assert is_alive
