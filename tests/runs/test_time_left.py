"""The time left, by a clock that the test moves."""

from __future__ import annotations

import pytest

from ngbkit.runs import time_left as clocks
from ngbkit.sweep.grid import Sweep


def test_the_time_left_follows_trials_and_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done, and what is under way, took so long; the rest will take as long for its weight."""
    now = [0.0]
    monkeypatch.setattr(clocks.time, "monotonic", lambda: now[0])
    trials = {str(number): trial for number, trial in enumerate(Sweep("resnet18", ["identity"], [4, 12, 28]).trials())}
    clock = clocks.Clock(trials, done=[])
    before = clock.remaining_s()
    now[0] = 4.0
    clock.advanced(["0"], 0.5)  # half of 8 of 8 + 16 + 32
    half = clock.remaining_s()
    now[0] = 8.0
    clock.finished("0")
    first = clock.remaining_s()
    now[0] = 10.0

    assert (None, 52.0, 48.0, 46.0) == (before, half, first, clock.remaining_s())
