"""The jobs of this user at a login node of Slurm: one `squeue` reads them for all devices behind it.

Nothing looks unless somebody asks: a question about a job is answered from the last look, and begins another in the
background once that is old. So a look never holds up events, and no job means no look.
"""

from __future__ import annotations

import re
import shlex
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ngbkit.cluster.shell import Shell
from ngbkit.errors import DeviceError
from ngbkit.user_text import clean_line

# The interval between looks, the earliest look after a job was submitted or cancelled, and the longest after failures.
LOOK_S, FIRST_LOOK_S, LONGEST_LOOK_S = 15.0, 2.0, 240.0
_PAUSE_S = 0.5
# With the jobs that ended in the last minutes, for their states; `-r` lists each index of an array.
_PROGRAM = """squeue -h -r -t all -u "$(id -un)" -o '%i %T %r'"""
# The states of a job that is gone, and of one that will be soon.
_GONE = frozenset(
    {
        *("", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
        *("BOOT_FAIL", "DEADLINE", "REVOKED"),
    }
)
_ENDED = _GONE | {"COMPLETING"}


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a job, or of an index of an array."""

    # Slurm's name of it; "" for a job that Slurm does not list.
    name: str
    reason: str = ""

    @property
    def has_ended(self) -> bool:
        return self.name in _ENDED

    @property
    def is_gone(self) -> bool:
        """True if the job has ended and none of its processes runs any more."""
        return self.name in _GONE


UNKNOWN = JobState("PENDING", "not read yet")


class JobQueue:
    """The watched jobs of one login node."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        # Why the last look failed; "" if it did not.
        self.fault = ""
        self._clock = clock
        self._lock = threading.Lock()
        # The shell of each watched job and when it was added, the oldest first.
        self._jobs: dict[str, tuple[Shell, float]] = {}
        self._states: dict[str, JobState] = {}
        # The beginning of the last look that succeeded: what was submitted later is not in it.
        self._looked_at = self._tried_at = -LONGEST_LOOK_S
        self._due_at = 0.0
        self._interval_s = LOOK_S
        self._is_looking = False

    def add(self, number: str, shell: Shell) -> None:
        """Watch a job that was submitted through that shell."""
        with self._lock:
            now = self._clock()
            if not self._jobs and not self.fault:
                self._due_at = max(now + FIRST_LOOK_S, self._tried_at + LOOK_S)
            self._jobs[number] = shell, now

    def remove(self, number: str) -> None:
        """Watch a job no longer."""
        with self._lock:
            self._jobs.pop(number, None)

    def read(self, number: str) -> JobState:
        """Return the last known state of a job."""
        self._refresh()
        with self._lock:
            return self._states.get(number, JobState("")) if self._is_known(number) else UNKNOWN

    def read_indices(self, number: str) -> dict[int, JobState] | None:
        """Return the last known states of an array's listed indices; None before the first look at it."""
        self._refresh()
        with self._lock:
            if not self._is_known(number):
                return None
            listed = ((name.partition("_"), state) for name, state in self._states.items())
            return {int(index): state for (job, _, index), state in listed if job == number and index}

    def hasten(self) -> None:
        """Look sooner, as a job was cancelled; not if the last look failed."""
        with self._lock:
            if not self.fault:
                self._due_at = min(self._due_at, max(self._clock(), self._tried_at + FIRST_LOOK_S))

    def wait_until_gone(self, number: str, timeout_s: float) -> None:
        """Wait until nothing of a cancelled job, or of any index of an array, runs any more."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            indices = self.read_indices(number)
            states = [self.read(number)] if not indices else indices.values()
            if all(state.is_gone for state in states):
                return
            self.hasten()
            time.sleep(_PAUSE_S)

    def _is_known(self, number: str) -> bool:
        _, added_at = self._jobs.get(number, (None, -LONGEST_LOOK_S))
        return self._looked_at > added_at

    def _refresh(self) -> None:
        """Begin a look in the background if one is due."""
        with self._lock:
            if self._is_looking or not self._jobs or self._clock() < self._due_at:
                return
            self._is_looking = True
            number, (shell, _) = next(iter(self._jobs.items()))
        look = threading.Thread(target=self._look, args=(number, shell), name="ngbkit-squeue", daemon=True)
        try:
            look.start()
        except RuntimeError:  # an interpreter that ends starts no thread
            self._look(number, shell)

    def _look(self, number: str, shell: Shell) -> None:
        began = self._clock()
        try:
            states, fault = _parse(shell.run(_PROGRAM)), ""
        except DeviceError as error:
            states, fault = {}, str(error)
        with self._lock:
            self._is_looking, self._tried_at, self.fault = False, began, fault
            if not fault:
                self._states, self._looked_at, self._interval_s = states, began, LOOK_S
            else:
                self._interval_s = min(2 * self._interval_s, LONGEST_LOOK_S)
                if number in self._jobs:  # the next try is by another device, whose `setup` may be better
                    self._jobs[number] = self._jobs.pop(number)
            self._due_at = self._clock() + self._interval_s


# A job, or an index of an array; other digits and longer numbers are no integers.
_JOB = re.compile(r"[0-9]{1,18}(_[0-9]{1,9})?")
_queues: dict[str | None, JobQueue] = {}


def get_queue(host: str | None) -> JobQueue:
    """Get the queue of a login node; None is this machine."""
    return _queues.setdefault(host, JobQueue())


def build_submission(label: str, log: str, options: Sequence[str]) -> str:
    """Build the command that submits a job of a device, whose script it reads, and prints its number."""
    return f"sbatch --parsable --export=ALL --job-name=ngbkit-{label} --output={log} {shlex.join(options)}"


def parse_number(output: str) -> str:
    """Parse the number of a submitted job, before which a login shell may print."""
    number = output.strip().splitlines()[-1].partition(";")[0] if output.strip() else ""
    if not _JOB.fullmatch(number):
        raise DeviceError(f"invalid output of sbatch: got {output.strip()!r}; expected the number of a job")
    return number


def _parse(output: str) -> dict[str, JobState]:
    """Parse the output of `squeue`, beside which a login shell may print."""
    states = {}
    for line in output.splitlines():
        number, _, rest = line.strip().partition(" ")
        name, _, reason = rest.partition(" ")
        if _JOB.fullmatch(number) and name.isupper():
            states[number] = JobState(name, clean_line(reason))
    return states
