"""Probes of the host: fixed work of some tenths of a millisecond, which tells how it runs the cores of this machine.

The cores of a virtual machine are threads of its host, which moves them to cores that are far from each other, or runs
something else on the same physical ones. No counter tells, and each runtime slows down by a factor of its own. What
tells is the time that a cache line takes from one core to another and back, and the time of fixed arithmetic.
"""

from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from ngbkit.hardware.host import probe_process

# All pairs of a large machine need not be asked: its slowest ones are the same for many networks.
_MOST_CORES = 8
# A new process answers within this time, and another one within that, unless something is wrong with it.
_START_S, _ANSWER_S = 5.0, 1.0


@dataclass(frozen=True, slots=True)
class HostReading:
    """The times of the probes at one moment, in seconds, of the slowest pair and core; NaN where one has none."""

    trip_s: float  # the round trip of a cache line between two cores
    work_s: float  # arithmetic, on all cores at once


UNKNOWN = HostReading(math.nan, math.nan)


@dataclass(slots=True)
class Probes:
    """A process on each of some cores, which sleeps until it is asked; none where there is one core."""

    _processes: list[tuple[subprocess.Popen[bytes], socket.socket]] = field(default_factory=list)

    def start(self, cores: Sequence[int]) -> None:
        """Start the processes, on pairs of these cores; none if a process cannot have its core."""
        chosen = _choose_cores(cores)
        try:
            for pair in zip(chosen[::2], chosen[1::2], strict=True):
                memory = os.memfd_create("ngbkit-probes")
                try:
                    os.ftruncate(memory, probe_process.PAGE)
                    self._processes += [_start_process(core, memory) for core in pair]
                finally:
                    os.close(memory)
            self._receive(_START_S)
        except OSError:
            self.end()

    def read(self) -> HostReading:
        """Let the probes work; if one does not answer, all end, and nothing is known from then on."""
        if not self._processes:
            return UNKNOWN
        try:
            trips = self._ask([probe_process.LEAD, probe_process.FOLLOW] * (len(self._processes) // 2))
            works = self._ask([probe_process.WORK] * len(self._processes))
        except OSError:
            self.end()
            return UNKNOWN
        return HostReading(_find_slowest(trips[::2]), _find_slowest(works))

    def end(self) -> None:
        """End the processes."""
        for process, channel in self._processes:
            channel.close()
            process.kill()
            process.wait()
        self._processes.clear()

    def _ask(self, letters: Sequence[bytes]) -> list[float]:
        # The followers first, so that each leader has an answer at once.
        for (_, channel), letter in reversed([*zip(self._processes, letters, strict=True)]):
            channel.sendall(letter)
        return self._receive(_ANSWER_S)

    def _receive(self, timeout_s: float) -> list[float]:
        answers = []
        for _, channel in self._processes:
            channel.settimeout(timeout_s)
            answers.append(channel.recv(probe_process.ANSWER.size))
            if len(answers[-1]) < probe_process.ANSWER.size:
                raise BrokenPipeError
        return [float(probe_process.ANSWER.unpack(answer)[0]) for answer in answers]


def _choose_cores(cores: Sequence[int]) -> list[int]:
    """Choose an even number of cores, spread over all of them."""
    count = min(len(cores), _MOST_CORES) // 2 * 2
    return [cores[place * len(cores) // count] for place in range(count)]


def _start_process(core: int, memory: int) -> tuple[subprocess.Popen[bytes], socket.socket]:
    script = [sys.executable, "-I", "-S", probe_process.__file__, str(core), str(memory)]
    channel, end = socket.socketpair()
    with end:
        process = subprocess.Popen(
            script, stdin=end.fileno(), stdout=end.fileno(), stderr=subprocess.DEVNULL, pass_fds=[memory]
        )
    return process, channel


def _find_slowest(times: Sequence[float]) -> float:
    return math.nan if any(map(math.isnan, times)) else max(times)
