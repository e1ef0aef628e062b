"""The load generator, with a fake clock."""

from __future__ import annotations

import numpy as np
import pytest

from ngbkit.device.serving.generator import REQUEST, send
from ngbkit.device.serving.schedule import draw_schedule


class Clock:
    """A clock that advances by sleeping, and by writing."""

    def __init__(self, write_s: float = 0.0) -> None:
        self.now, self.write_s, self.sent = 100.0, write_s, []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def write(self, data: bytes) -> None:
        self.sent.append((self.now, *REQUEST.unpack(data)))
        self.now += self.write_s


def test_requests_are_sent_at_their_times() -> None:
    """It sleeps until each, and sends the time for which it was scheduled."""
    clock = Clock()
    lags = send([0.5, 0.75, 2.0], clock.write, start=101.0, clock=clock, sleep=clock.sleep)

    assert [(101.5, 101.5), (101.75, 101.75), (103.0, 103.0)] == clock.sent
    assert [0, 0, 0] == lags


def test_a_late_generator_hides_nothing() -> None:
    """A write that blocks delays those after it, which keep their own times, and it says by how much."""
    clock = Clock(write_s=1.0)
    lags = send([0.0, 0.1, 0.2], clock.write, start=100.0, clock=clock, sleep=clock.sleep)

    assert [100.0, 100.1, 100.2] == pytest.approx([due for _, due in clock.sent])
    assert [1.0, 1.9, 2.8] == pytest.approx(lags)


def test_arrivals_are_poisson() -> None:
    """Their number and their distances have the mean and the spread of the process; the seed determines them."""
    schedule = draw_schedule(200.0, 50.0, "7/0")
    distances = np.diff(schedule)

    assert 10_000 == pytest.approx(len(schedule), abs=400)
    assert [1 / 200, 1 / 200] == pytest.approx([distances.mean(), distances.std()], rel=0.05)
    assert 0 < schedule[0] < schedule[-1] < 50
    assert draw_schedule(200.0, 50.0, "7/0") == schedule
    assert draw_schedule(200.0, 50.0, "7/1") != schedule


def test_a_trial_has_one_request_at_least() -> None:
    """However low its rate."""
    assert [1.0] == draw_schedule(1e-9, 1.0, "0")
