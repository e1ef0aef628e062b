"""The queue of a login node: one `squeue` for all of its jobs, seldom, and with patience after a failure."""

from __future__ import annotations

from pathlib import Path

import pytest
from patience import wait_until

from ngbkit.cluster.shell import Shell
from ngbkit.errors import DeviceError
from ngbkit.fleet.job_queue import FIRST_LOOK_S, LONGEST_LOOK_S, LOOK_S, JobQueue, parse_number

HERE = Shell()


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Login:
    """A login node: its `squeue` prints a file and counts its calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = Clock()
        self.queue = JobQueue(self.clock)
        squeue = folder / "bin" / "squeue"
        squeue.parent.mkdir()
        squeue.write_text(f'#!/bin/sh\necho "$SETUP $*" >>{folder}/calls\ncat {folder}/jobs\n')
        squeue.chmod(0o700)

    def write(self, *lines: str) -> None:
        (self.folder / "jobs").write_text("\n".join(["Welcome to the login node", *lines, ""]))

    @property
    def calls(self) -> list[str]:
        file = self.folder / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def wait(self, seconds: float, number: str = "7") -> None:
        """Let the time pass; ask then, and wait for the look that begins, if one does."""
        self.clock.now += seconds
        self.queue.read(number)
        wait_until(lambda: not self.queue._is_looking)


@pytest.fixture
def login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Login:
    """A login node, this machine."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    return Login(tmp_path)


def test_one_look_reads_all_jobs(login: Login) -> None:
    """The first one soon after a submission, the next at its own pace, however many ask."""
    for number in range(100):
        login.queue.add(str(number), HERE)
    login.write(*(f"{number} RUNNING None" for number in range(100)))
    login.wait(FIRST_LOOK_S - 0.1)

    assert [] == login.calls
    assert "not read yet" == login.queue.read("7").reason

    login.wait(0.2)
    states = {login.queue.read(str(number)).name for number in range(100)}
    login.wait(LOOK_S - 1)

    assert {"RUNNING"} == states
    assert 1 == len(login.calls)

    login.wait(2)

    assert 2 == len(login.calls)


def test_nothing_looks_for_nobody(login: Login) -> None:
    """The queue is polled only while a job waits and somebody asks."""
    login.wait(10 * LOOK_S)
    login.queue.add("7", HERE)
    login.write("7 RUNNING None")
    login.wait(LOOK_S)
    login.queue.remove("7")
    login.wait(10 * LOOK_S)

    assert 1 == len(login.calls)


def test_later_jobs_wait_for_the_next_look(login: Login) -> None:
    """A hundred submissions a second apart are no hundred looks; none is taken for ended meanwhile."""
    login.write("1 RUNNING None")
    states = set()
    for number in range(1, 31):
        login.queue.add(str(number), HERE)
        login.wait(1.0)
        states.add(login.queue.read(str(number)).name)

    assert {"PENDING", ""} >= states
    assert 2 == len(login.calls)


def test_a_job_is_not_ended_before_it_was_looked_for(login: Login) -> None:
    """A look that began before a submission does not list it."""
    login.write("1 RUNNING None")
    login.queue.add("1", HERE)
    login.wait(LOOK_S)
    login.queue.add("2", HERE)

    assert not login.queue.read("2").has_ended

    login.wait(LOOK_S, "2")

    assert login.queue.read("2").has_ended
    assert not login.queue.read("1").has_ended


def test_a_cancelled_job_is_looked_for_sooner(login: Login) -> None:
    """A cancelled job is polled sooner, and is gone when nothing of it runs."""
    login.queue.add("7", HERE)
    login.write("7 COMPLETING None")
    login.wait(LOOK_S)
    state = login.queue.read("7")
    login.queue.hasten()
    login.write("7 CANCELLED None")
    login.wait(FIRST_LOOK_S + 0.1)

    assert (True, False) == (state.has_ended, state.is_gone)
    assert login.queue.read("7").is_gone


def test_a_failed_look_says_nothing_about_a_job(login: Login) -> None:
    """The last known state stays, the pause doubles up to a limit, and the next look is by another device's setup."""
    login.queue.add("7", Shell(setup="export SETUP=first"))
    login.queue.add("8", Shell(setup="export SETUP=second"))
    login.write("7 RUNNING None")
    login.wait(LOOK_S)
    (login.folder / "jobs").unlink()
    pauses = []
    for _ in range(7):
        calls, pause = len(login.calls), 0
        while len(login.calls) == calls:
            login.wait(1)
            pause += 1
        pauses.append(pause)
        login.queue.hasten()
        login.queue.add("9", HERE)

    assert "RUNNING" == login.queue.read("7").name
    assert "ended with 1" in login.queue.fault
    assert [LOOK_S, 2 * LOOK_S, 4 * LOOK_S, 8 * LOOK_S, *[LONGEST_LOOK_S] * 3] == pauses
    assert ["first", "first", "second"] == [call.split()[0] for call in login.calls[:3]]

    login.write("7 RUNNING None")
    login.wait(LONGEST_LOOK_S)

    assert "" == login.queue.fault


def test_indices_of_an_array_are_read(login: Login) -> None:
    """Each has a state; those of another array are not mixed up with them."""
    login.queue.add("7", HERE)

    assert login.queue.read_indices("7") is None

    login.write("7_0 RUNNING None", "7_12 PENDING Resources", "70_3 RUNNING None", "7_[20-30] PENDING Priority")
    login.wait(LOOK_S)
    indices = login.queue.read_indices("7") or {}

    assert {0: "RUNNING", 12: "PENDING"} == {index: state.name for index, state in indices.items()}
    assert "Resources" == indices[12].reason


@pytest.mark.parametrize("name", ["²", "٣", "7_²", f"7_{5000 * '9'}", "-1", "7_"])
def test_other_digits_are_no_job(name: str, login: Login) -> None:
    """A login node may print anything, and what is no number of a job is none of an array's indices either."""
    login.write(f"{name} RUNNING None", "7_3 RUNNING None")
    login.queue.add("7", HERE)
    login.wait(LOOK_S)

    assert {3} == (login.queue.read_indices("7") or {}).keys()
    with pytest.raises(DeviceError, match="expected the number of a job"):
        parse_number(name)
