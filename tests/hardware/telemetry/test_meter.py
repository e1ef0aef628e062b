"""The meter: a thread that lasts as long as a turn, and never disturbs it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from fakes import FakeChip
from patience import limit_s

from ngbkit.hardware.telemetry import Meter, Reading, Use


def build_readings(count: int, **fields: object) -> list[Reading]:
    """Build that many readings, a second apart."""
    return [Reading(time_s=float(second), **fields) for second in range(count)]  # type: ignore[arg-type]


def list_threads() -> list[threading.Thread]:
    """List the threads of meters."""
    return [thread for thread in threading.enumerate() if thread.name == "ngbkit telemetry"]


class Counted:
    """Waits until a chip has been read so often."""

    def __init__(self) -> None:
        self._count, self._changed = 0, threading.Condition()

    def __call__(self, count: int) -> None:
        with self._changed:
            self._count = count
            self._changed.notify_all()

    def wait(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._count >= count, limit_s())


def test_a_chip_is_read_during_a_turn() -> None:
    """The meter reads a chip before, in and after a turn, and summarises the readings."""
    counted = Counted()
    chip = FakeChip(build_readings(4, power_w=10.0, busy_percent=50.0), on_read=counted)
    meter = Meter(chip, period_s=0.0)
    with meter.record_turn():
        counted.wait(4)
    use = meter.summarize()

    # From the fourth reading on, the time is constant.
    assert (3.0, 30.0, 50.0) == (use.turns_s, use.energy_j, use.gpu_percent)
    assert chip.count == use.samples
    assert 5 <= use.samples


def test_a_turn_begins_after_the_first_reading_and_ends_with_the_last() -> None:
    """Every turn has a first and a last reading, and its thread ends with it."""
    chip = FakeChip(build_readings(2))
    meter = Meter(chip, period_s=30.0)
    with meter.record_turn():
        within = (chip.count, len(list_threads()))

    assert ((1, 1), (2, [])) == (within, (chip.count, list_threads()))


def test_nothing_is_read_between_turns() -> None:
    """The meter reads nothing between turns, and adds the turns up."""
    chip = FakeChip(build_readings(4))
    meter = Meter(chip, period_s=30.0)
    with meter.record_turn():
        pass
    between = meter.summarize()
    with meter.record_turn():
        pass

    assert ((1.0, 2), (2.0, 4)) == (
        (between.turns_s, between.samples),
        (meter.summarize().turns_s, meter.summarize().samples),
    )


def test_without_a_chip_a_turn_costs_nothing() -> None:
    """No thread, and all is None."""
    meter = Meter(None)
    with meter.record_turn():
        within = list_threads()

    assert ([], Use()) == (within, meter.summarize())


def test_a_failed_reading_is_dropped() -> None:
    """The turn does not fail."""
    counted = Counted()

    def fail(count: int) -> None:
        counted(count)
        if count == 2:
            raise OSError("the driver has gone")

    chip = FakeChip(build_readings(9), on_read=fail)
    meter = Meter(chip, period_s=0.0)
    with meter.record_turn():
        counted.wait(4)

    assert chip.count - 1 == meter.summarize().samples


def test_a_chip_that_always_fails_has_no_use() -> None:
    """A chip whose readings fail has an empty use and raises nothing."""
    meter = Meter(FakeChip([]), period_s=0.0)  # it has no readings
    with meter.record_turn():
        pass

    assert Use() == meter.summarize()


def test_an_error_in_a_turn_propagates() -> None:
    """An error in a turn propagates, its thread ends, and the readings remain."""
    meter = Meter(FakeChip(build_readings(2)), period_s=30.0)
    with pytest.raises(ValueError, match="its own"), meter.record_turn():
        raise ValueError("its own")

    assert ([], 2) == (list_threads(), meter.summarize().samples)


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    """Blocks a driver until the end of the test."""
    event = threading.Event()
    yield event
    event.set()
    for thread in list_threads():
        thread.join()


@pytest.mark.parametrize("hang", [1, 2])
def test_a_driver_that_hangs_is_given_up(stuck: threading.Event, hang: int) -> None:
    """A driver that hangs loses its turn, and later turns do not wait."""
    chip = FakeChip(build_readings(2), on_read=lambda count: stuck.wait() if count == hang else None)  # type: ignore[arg-type, return-value]
    meter = Meter(chip, period_s=30.0, patience_s=0.01)
    with meter.record_turn():
        pass
    first_count = chip.count
    with meter.record_turn():
        pass

    assert (hang, hang, Use()) == (first_count, chip.count, meter.summarize())


def test_a_system_without_threads_has_no_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn continues without telemetry if no thread starts."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    meter = Meter(FakeChip(build_readings(2)))
    with meter.record_turn():
        done = True

    assert (True, Use()) == (done, meter.summarize())


def test_gpu_memory_is_that_of_the_process_and_its_descendants() -> None:
    """GPU memory counts only the process and its living descendants."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        memory = {child.pid: 40, os.getpid(): 2, os.getppid(): 1000, 4194303: 5000}
        chips = [FakeChip(build_readings(2, process_memory_bytes=memory)) for _ in range(2)]
        parent, descendant = Meter(chips[0], period_s=30.0), Meter(chips[1], child.pid, period_s=30.0)
        for meter in (parent, descendant):
            with meter.record_turn():
                pass
    finally:
        child.communicate(b"\n")

    assert (42, 40) == tuple(meter.summarize().process_memory_bytes for meter in (parent, descendant))


def test_memory_of_others_alone_does_not_count() -> None:
    """GPU memory is None if the driver reports only other processes, as in a container."""
    meter = Meter(FakeChip(build_readings(2, process_memory_bytes={os.getppid(): 7})), period_s=30.0)
    with meter.record_turn():
        pass

    assert None is meter.summarize().process_memory_bytes
