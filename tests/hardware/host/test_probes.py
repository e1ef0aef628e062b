"""Probes of the host: processes on their cores, which measure, and end when anything is wrong."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest
from requirements import Requirement, require

from ngbkit.hardware import environment
from ngbkit.hardware.host import Probes

CORES = environment.list_usable_cores()
TWO_CORES = Requirement(name="a second core", install="taskset -c 0,1 make test")


@pytest.fixture
def probes() -> Iterator[Probes]:
    """Probes on two cores of this machine."""
    require(TWO_CORES, present=len(CORES) > 1)
    started = Probes()
    started.start(CORES[:2])
    yield started
    started.end()


def list_children() -> list[psutil.Process]:
    """List the probes of this process."""
    return [each for each in psutil.Process().children() if any("probe_process" in word for word in each.cmdline())]


def test_probes_measure_a_round_trip_and_arithmetic(probes: Probes) -> None:
    """A quiet reading has both times; each process has a core of its own."""
    readings = [probes.read() for _ in range(20)]
    assert any(reading.trip_s > 0 for reading in readings)
    assert all(reading.work_s > 0 for reading in readings)
    assert [[core] for core in CORES[:2]] == sorted(each.cpu_affinity() for each in list_children())


def test_cores_that_are_no_pair_tell_nothing() -> None:
    """Probes need two cores, and each process its own."""
    for cores in ([], CORES[:1], [100_000, 100_001]):
        single = Probes()
        single.start(cores)
        assert math.isnan(single.read().trip_s)
        assert [] == list_children()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_probe_that_does_not_answer_ends_all(
    probes: Probes, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A measurement goes on without probes."""
    monkeypatch.setattr("ngbkit.hardware.host.probes._ANSWER_S", 0.05)
    os.kill(list_children()[0].pid, number)

    assert math.isnan(probes.read().work_s)
    assert [] == list_children()
    assert math.isnan(probes.read().work_s)


def test_probes_end_with_their_process() -> None:
    """The probes of a process that is killed read the end of their channel."""
    require(TWO_CORES, present=len(CORES) > 1)
    program = (
        "import os, signal\n"
        "from ngbkit.hardware import environment\n"
        "from ngbkit.hardware.host import Probes\n"
        "probes = Probes()\n"
        "probes.start(environment.list_usable_cores()[:2])\n"
        "print(*[process.pid for process, _ in probes._processes], flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    started = [int(pid) for pid in done.stdout.split()]
    assert 2 == len(started)
    assert [] == psutil.wait_procs([psutil.Process(pid) for pid in started if psutil.pid_exists(pid)], timeout=10)[1]
