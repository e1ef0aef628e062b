"""One plan at a time on a device."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ngbkit.device.interrupt import Interrupt
from ngbkit.device.lock import occupied

HOLD = """
import sys
from pathlib import Path
from ngbkit.device.interrupt import Interrupt
from ngbkit.device.lock import occupied
with Interrupt() as interrupt, occupied(Path(sys.argv[1]), "first", interrupt.descriptor, print):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> subprocess.Popen[bytes]:
    """A process that has the device."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert b"held\n" == process.stdout.readline()
    return process


def end(holder: subprocess.Popen[bytes]) -> None:
    holder.kill()
    holder.communicate()


def test_the_second_waits_until_the_first_has_ended_however_it_did(
    holder: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """It is told once whom it waits for."""
    told: list[str] = []
    threading.Timer(1.2, end, [holder]).start()
    with Interrupt() as interrupt, occupied(tmp_path / "lock", "second", interrupt.descriptor, told.append):
        assert holder.poll() is not None
        written = (tmp_path / "lock").read_text()

    assert [f"run first (process {holder.pid})"] == told
    assert f"run second (process {os.getpid()})" == written


def test_a_wait_can_be_stopped(holder: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """Nothing was measured, so nothing is lost."""
    try:
        with Interrupt() as interrupt:
            threading.Timer(0.2, interrupt.set).start()
            with (
                pytest.raises(InterruptedError, match="waited for the device"),
                occupied(tmp_path / "lock", "second", interrupt.descriptor, print),
            ):
                pytest.fail("it was not free")
        assert holder.poll() is None
    finally:
        end(holder)
