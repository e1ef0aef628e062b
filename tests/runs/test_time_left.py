"""The time left, by a fake clock."""

from __future__ import annotations

import pytest

from ngbkit.api import Sweep
from ngbkit.runs import time_left


def test_the_time_left_follows_trials_and_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is expected to take as long for its weight as the finished and the current trials."""
    now = [0.0]
    monkeypatch.setattr(time_left.time, "monotonic", lambda: now[0])
    trials = {str(number): trial for number, trial in enumerate(Sweep("resnet18", ["identity"], [4, 12, 28]).trials())}
    estimator = time_left.TimeLeft(trials, finished=[])
    start = estimator.estimate_s()
    now[0] = 4.0
    estimator.advance(["0"], 0.5)  # half of 8 of 8 + 16 + 32
    half = estimator.estimate_s()
    now[0] = 8.0
    estimator.finish("0")
    first = estimator.estimate_s()
    now[0] = 10.0

    assert (None, 52.0, 48.0, 46.0) == (start, half, first, estimator.estimate_s())
