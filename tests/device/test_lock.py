"""The locks of a device and of its cores: one plan at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ngbkit.device.interrupt import Interrupt
from ngbkit.device.lock import acquire_cores, acquire_lock, locate_core
from ngbkit.errors import NgbkitError
from ngbkit.files import explain_errors, is_locked
from ngbkit.sweep.journal import Journal

HOLDER = """
import sys
from pathlib import Path
from ngbkit.device.interrupt import Interrupt
from ngbkit.device.lock import acquire_lock
with Interrupt() as interrupt, acquire_lock(Path(sys.argv[1]), "first", interrupt.descriptor, print):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> subprocess.Popen[bytes]:
    """A process that has the lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert b"held\n" == process.stdout.readline()
    return process


def kill(holder: subprocess.Popen[bytes]) -> None:
    holder.kill()
    holder.communicate()


def test_the_second_waits_until_the_first_has_ended(holder: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """A second process reports the holder of the lock once and waits until it ends."""
    holders: list[str] = []
    threading.Timer(1.2, kill, [holder]).start()
    with Interrupt() as interrupt, acquire_lock(tmp_path / "lock", "second", interrupt.descriptor, holders.append):
        assert holder.poll() is not None
        content = (tmp_path / "lock").read_text()

    assert [f"run first (process {holder.pid})"] == holders
    assert f"run second (process {os.getpid()})" == content


def test_a_wait_can_be_stopped(holder: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """An interrupt ends it, and the holder stays."""
    try:
        with Interrupt() as interrupt:
            threading.Timer(0.2, interrupt.set).start()
            with (
                pytest.raises(InterruptedError, match="waited for the device"),
                acquire_lock(tmp_path / "lock", "second", interrupt.descriptor, print),
            ):
                pytest.fail("it was not free")
        assert holder.poll() is None
    finally:
        kill(holder)


def test_plans_take_turns_where_their_cores_overlap(tmp_path: Path) -> None:
    """One on the other cores does not wait; one that shares a core does, and says with whom."""
    holders: list[str] = []
    with (
        Interrupt() as interrupt,
        acquire_cores(tmp_path, [1, 0], "first on cpu", interrupt.descriptor, holders.append),
    ):
        with acquire_cores(tmp_path, [2, 3], "second on gpu", interrupt.descriptor, holders.append):
            assert [] == holders
        threading.Timer(0.2, interrupt.set).start()
        with (
            pytest.raises(InterruptedError),
            acquire_cores(tmp_path, [1, 2], "third", interrupt.descriptor, holders.append),
        ):
            pytest.fail("core 1 was not free")

    assert [f"run first on cpu (process {os.getpid()})"] == holders
    assert {locate_core(tmp_path, core).name for core in range(4)} == {path.name for path in tmp_path.iterdir()}


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a file system without locks has the file and a remedy."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setenv("NGBKIT_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(fcntl, "flock", refuse)
    remedy = "its file system has no locks. Set NGBKIT_STATE_DIR to a folder on a local disk."
    with pytest.raises(NgbkitError) as of_lock, explain_errors(), acquire_lock(tmp_path / "a", "run", -1, print):
        pass
    with pytest.raises(NgbkitError) as of_journal:
        Journal(tmp_path / "b.sqlite")

    assert f"{tmp_path / 'a'} cannot be used: {remedy}" == str(of_lock.value)
    assert f"the journal cannot be opened: {tmp_path / 'b.sqlite'} cannot be used: {remedy}" == str(of_journal.value)


def test_a_held_lock_is_found(holder: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """A lock counts as held until its holder ends, and a look at it does not take it."""
    before = is_locked(tmp_path / "lock")
    kill(holder)

    assert [True, False, False] == [before, is_locked(tmp_path / "lock"), is_locked(tmp_path / "missing")]
