"""Processes that end with another one, and the end of those that a process has left behind."""

from __future__ import annotations

import os
import subprocess
import sys

from ngbkit.device import process_lifetime


def test_waiting_for_a_process_ends_when_it_does() -> None:
    """For a child or not; the wait for an ended process returns at once."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.2)"])
    process_lifetime.wait_for_end(process.pid)
    process.wait()
    process_lifetime.wait_for_end(process.pid)

    assert 0 == process.returncode


def test_marked_processes_are_ended() -> None:
    """In whatever session; those with another mark, and this process, live on."""
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
