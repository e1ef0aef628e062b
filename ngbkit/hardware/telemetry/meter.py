"""The meter: it reads a chip on a thread of its own during a turn of timed calls."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

import psutil

from ngbkit.hardware.telemetry.reading import Chip, Reading
from ngbkit.hardware.telemetry.use import Totals, Use

# A driver that has not answered after this time is not queried again.
_PATIENCE_S = 2.0


class Meter:
    """Records the use of a chip over all turns of one trial: ``with meter.record_turn(): ...``, then ``summarize()``.

    Each turn starts a thread and ends it: that costs less than a millisecond outside of the timed calls, and leaves
    nothing running between turns. Only that thread calls the driver. The turn begins after the first reading and ends
    before the last one. The meter never raises; if the driver once fails to answer within `patience_s`, the meter
    drops that turn and never queries the driver again. Without a chip a turn costs nothing and every value is None.
    GPU memory is also summed over process `pid`, by default this one, and its descendants.

    During a turn, 50 readings a second of an AGX Orin's files, copied to a disk, cost 1.6 % of one core of a busy x86
    machine: 0.08 ms a warm reading, and the rest for waking up. The chip's own response time, mostly waiting, adds to
    that.
    """

    def __init__(
        self,
        chip: Chip | None,
        pid: int | None = None,
        *,
        period_s: float | None = None,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._chip, self._period_s, self._patience_s = chip, period_s, patience_s
        self._family = _Family(os.getpid() if pid is None else pid)
        self._totals = Totals(lag_s=0.0 if chip is None else chip.lag_s)

    def record_turn(self) -> AbstractContextManager[None]:
        """Record the chip within the block."""
        return nullcontext() if self._chip is None else self._record(self._chip)

    def summarize(self) -> Use:
        """Summarize all turns so far."""
        return self._totals.summarize()

    @contextmanager
    def _record(self, chip: Chip) -> Iterator[None]:
        recorder = _Recorder(chip, chip.period_s if self._period_s is None else self._period_s)
        started = recorder.start(self._patience_s)
        try:
            yield
        finally:
            if started and recorder.stop(self._patience_s):
                readings = recorder.readings
                memory = [reading.process_memory_bytes for reading in readings if reading.process_memory_bytes]
                totals = [total for total in map(self._family.sum_memory, memory) if total is not None]
                self._totals.add(readings, totals)
            else:
                self._chip = None


class _Recorder:
    """The thread that reads a chip during one turn."""

    def __init__(self, chip: Chip, period_s: float) -> None:
        self.readings: list[Reading] = []
        self._chip, self._period_s = chip, period_s
        self._first, self._stopped = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="ngbkit telemetry", daemon=True)

    def start(self, patience_s: float) -> bool:
        """Start the thread; return whether the chip has answered, even with an error."""
        try:
            self._thread.start()
        except RuntimeError:
            return False  # the system can start no further thread
        if self._first.wait(patience_s):
            return True
        self._stopped.set()
        return False

    def stop(self, patience_s: float) -> bool:
        """Request the last reading; return whether the thread has ended."""
        self._stopped.set()
        self._thread.join(patience_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        self._read()
        self._first.set()
        # Energy counts from the first reading after the chip's lag.
        early_s = 2 * self._chip.lag_s
        if 0 < early_s < self._period_s and not self._stopped.wait(early_s):
            self._read()
        while not self._stopped.wait(self._period_s):
            self._read()
        self._read()

    def _read(self) -> None:
        try:
            self.readings.append(self._chip.read())
        except Exception:  # noqa: BLE001  a lost reading must not fail the measurement beside it
            return


class _Family:
    """Process `pid` and its descendants, among the processes that a driver lists."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._members: dict[int, bool] = {pid: True}

    def sum_memory(self, memory: Mapping[int, int]) -> int | None:
        """Sum the memory of the family; None if the driver lists no member."""
        sizes = [size for pid, size in memory.items() if self._is_member(pid)]
        return sum(sizes) if sizes else None

    def _is_member(self, pid: int) -> bool:
        if pid not in self._members:
            try:
                self._members[pid] = any(parent.pid == self._pid for parent in psutil.Process(pid).parents())
            except psutil.Error:
                # It has ended, or is in another container: the pid may later belong to another process.
                return False
        return self._members[pid]
