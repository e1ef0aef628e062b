"""The meter: a thread that lasts as long as a turn, and never stands in its way."""

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


def ticking(count: int, **told: object) -> list[Reading]:
    """So many readings, a second apart."""
    return [Reading(at_s=float(at), **told) for at in range(count)]  # type: ignore[arg-type]


def threads() -> list[threading.Thread]:
    """Those of meters."""
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


def test_a_chip_is_read_while_a_turn_goes_on() -> None:
    """Before it, in it and after it; the use is what these readings add up to."""
    counted = Counted()
    chip = FakeChip(ticking(4, power_w=10.0, busy_percent=50.0), asked=counted)
    meter = Meter(chip, period_s=0.0)
    with meter.turn():
        counted.wait(4)
    use = meter.use()

    # From the fourth on, time stands still.
    assert (3.0, 30.0, 50.0) == (use.turns_s, use.energy_j, use.gpu_percent)
    assert chip.count == use.samples
    assert 5 <= use.samples


def test_a_turn_begins_after_the_first_reading_and_ends_with_the_last() -> None:
    """However short it is; and its thread is gone."""
    chip = FakeChip(ticking(2))
    meter = Meter(chip, period_s=30.0)
    with meter.turn():
        within = (chip.count, len(threads()))

    assert ((1, 1), (2, [])) == (within, (chip.count, threads()))


def test_nothing_is_read_between_turns() -> None:
    """And turns add up."""
    chip = FakeChip(ticking(4))
    meter = Meter(chip, period_s=30.0)
    with meter.turn():
        pass
    between = meter.use()
    with meter.turn():
        pass

    assert ((1.0, 2), (2.0, 4)) == ((between.turns_s, between.samples), (meter.use().turns_s, meter.use().samples))


def test_without_a_chip_a_turn_is_nothing() -> None:
    """No thread, and all is None."""
    meter = Meter(None)
    with meter.turn():
        within = threads()

    assert ([], Use()) == (within, meter.use())


def test_a_reading_that_fails_is_left_out() -> None:
    """The turn does not hear of it."""
    counted = Counted()

    def fail(count: int) -> None:
        counted(count)
        if count == 2:
            raise OSError("the driver has gone")

    chip = FakeChip(ticking(9), asked=fail)
    meter = Meter(chip, period_s=0.0)
    with meter.turn():
        counted.wait(4)

    assert chip.count - 1 == meter.use().samples


def test_a_chip_that_only_fails_is_no_use() -> None:
    """And nothing is raised."""
    meter = Meter(FakeChip([]), period_s=0.0)  # it has no reading to give
    with meter.turn():
        pass

    assert Use() == meter.use()


def test_what_a_turn_raises_goes_through() -> None:
    """With its thread ended, and the readings kept."""
    meter = Meter(FakeChip(ticking(2)), period_s=30.0)
    with pytest.raises(ValueError, match="its own"), meter.turn():
        raise ValueError("its own")

    assert ([], 2) == (threads(), meter.use().samples)


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    """Holds a driver up until the test has ended."""
    event = threading.Event()
    yield event
    event.set()
    for thread in threads():
        thread.join()


@pytest.mark.parametrize("at", [1, 2])
def test_a_driver_that_hangs_is_given_up(stuck: threading.Event, at: int) -> None:
    """At the beginning of a turn or at its end: that turn is not told, and later ones do not wait."""
    chip = FakeChip(ticking(2), asked=lambda count: stuck.wait() if count == at else None)  # type: ignore[arg-type, return-value]
    meter = Meter(chip, period_s=30.0, patience_s=0.01)
    with meter.turn():
        pass
    asked = chip.count
    with meter.turn():
        pass

    assert (at, at, Use()) == (asked, chip.count, meter.use())


def test_a_system_without_threads_is_measured_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """The turn goes on."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    meter = Meter(FakeChip(ticking(2)))
    with meter.turn():
        done = True

    assert (True, Use()) == (done, meter.use())


def test_gpu_memory_is_that_of_the_process_and_its_descendants() -> None:
    """Not of others, of those that have ended, or of the parent."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        memory = {child.pid: 40, os.getpid(): 2, os.getppid(): 1000, 4194303: 5000}
        chips = [FakeChip(ticking(2, process_memory_bytes=memory)) for _ in range(2)]
        own, its = Meter(chips[0], period_s=30.0), Meter(chips[1], child.pid, period_s=30.0)
        for meter in (own, its):
            with meter.turn():
                pass
    finally:
        child.communicate(b"\n")

    assert (42, 40) == (own.use().process_memory_bytes, its.use().process_memory_bytes)


def test_memory_of_others_alone_tells_nothing() -> None:
    """As in a container, where the driver counts processes otherwise."""
    meter = Meter(FakeChip(ticking(2, process_memory_bytes={os.getppid(): 7})), period_s=30.0)
    with meter.turn():
        pass

    assert None is meter.use().process_memory_bytes
