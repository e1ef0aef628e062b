"""The effects of disturbances, as a figure."""

from __future__ import annotations

import math

from drawn import Spec

from ngbkit.runs.selfcheck import disturbances
from ngbkit.runs.selfcheck.disturbances import Effect


def build(beside: str, number: str, ratio: float, low: float = math.nan, high: float = math.nan) -> Effect:
    return Effect(
        disturbance="threads spin", beside=beside, number=number, ratio=ratio, low=low, high=high, spread=1.1, rounds=6
    )


def test_effects_are_drawn() -> None:
    """A point for each, by load, in a panel for each number; an interval where there is one."""
    effects = [
        build("nothing", "latency of identity", 1.1, 1.0, 1.2),
        build("a busy process", "latency of identity", 1.9),
        build("nothing", "speed-up of onnxruntime", 0.7),
    ]
    spec = Spec(disturbances.draw(effects))

    assert [(1.1, 1.0, 1.2), (1.9, None, None), (0.7, None, None)] == [
        (row["ratio"], row["low"], row["high"]) for row in spec.rows
    ]
    assert {"threads spin", "latency of identity", "speed-up of onnxruntime", "a busy process"} <= spec.texts()
    assert ["rule", "rule", "point"] == spec.marks()
