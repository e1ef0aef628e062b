"""Totals over turns: energy if it is accurate, and the other use of a chip."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from ngbkit.hardware.telemetry import Reading, Use
from ngbkit.hardware.telemetry.use import Totals


def build_turn(
    seconds: float, period: float = 0.02, start: float = 0.0, **fields: Callable[[float], Any]
) -> list[Reading]:
    """Build the readings of a turn; each field is a function of the time."""
    count = round(seconds / period)
    times = [start + seconds * index / count for index in range(count + 1)]
    return [Reading(time_s=time_s, **{name: function(time_s) for name, function in fields.items()}) for time_s in times]


def sum_up(turns: Iterable[list[Reading]], lag_s: float = 0.1) -> Use:
    totals = Totals(lag_s=lag_s)
    for readings in turns:
        totals.add(readings)
    return totals.summarize()


def build_counter(watts: Callable[[float], float], every: float = 0.1, step: float = 0.001) -> Callable[[float], float]:
    """Build an energy counter that is updated only every so often."""
    return lambda time_s: (
        sum(watts(step * tick) for tick in range(round(int(time_s / every + 1e-9) * every / step))) * step
    )


def test_without_a_turn_there_is_no_use() -> None:
    """The use of no turn is empty."""
    assert Use() == sum_up([])


def test_energy_is_the_difference_of_the_counter() -> None:
    """The energy is the difference of the counter over the whole turn."""
    use = sum_up([build_turn(2.0, energy_j=lambda time_s: 1000 + 50 * time_s)])

    assert (100.0, 2.0) == (pytest.approx(use.energy_j), use.turns_s)


@pytest.mark.parametrize(
    ("turns", "lag_s", "energy_j"),
    [
        # The counter is preferred to power, as it misses nothing.
        ([build_turn(2.0, energy_j=lambda time_s: 50 * time_s, power_w=lambda time_s: 70.0)], 0.1, 100.0),
        # The time between turns does not count.
        ([build_turn(1.0, start=10.0 * index, energy_j=lambda time_s: 30 * time_s) for index in range(4)], 0.1, 120.0),
        # A turn need not be long if the sensor does not lag: every reading belongs to it.
        ([build_turn(0.1, power_w=lambda time_s: 15.0)], 0.0, 1.5),
        # The driver may refuse some of the readings.
        ([build_turn(2.0, energy_j=lambda time_s: None if 0.5 < time_s < 0.7 else 50 * time_s)], 0.1, 100.0),
        # A counter that was reset is no source, and there is no power.
        ([build_turn(2.0, energy_j=lambda time_s: 1000.0 if time_s < 1 else 5.0)], 0.1, None),
    ],
)
def test_the_energy_of_turns_is_that_of_the_best_source(
    turns: list[list[Reading]], lag_s: float, energy_j: float | None
) -> None:
    """The energy of turns is the sum of what their counter, or else their power, tells."""
    assert pytest.approx(energy_j) == sum_up(turns, lag_s).energy_j


def test_without_a_counter_energy_is_the_area_under_power() -> None:
    """The energy is the trapezoidal area under power if there is no counter."""
    conclusive = [(0.1, 12.0), (1.1, 22.0), (2.1, 12.0)]
    readings = [
        Reading(time_s=0.0, power_w=500.0),
        *(Reading(time_s=time_s, power_w=power) for time_s, power in conclusive),
    ]

    assert 17.0 * 2.1 == pytest.approx(sum_up([readings]).energy_j)


def test_earlier_work_is_not_charged_to_a_turn() -> None:
    """The counter lags: at the beginning of a turn it still adds earlier energy."""
    counter = build_counter(lambda time_s: 2000.0 if time_s < 1.03 else 100.0)
    use = sum_up([build_turn(2.0, start=1.03, energy_j=counter)])

    assert 200.0 == pytest.approx(use.energy_j, rel=0.01)


@pytest.mark.parametrize(
    ("seconds", "turns", "reported"),
    [
        (0.9, 1, False),
        (0.94, 1, True),
        # Only the time after the lag counts, and less of it is more uncertain.
        (0.2, 60, False),
        (0.2, 70, True),
        (0.1, 1000, False),
        (0.06, 1000, False),
    ],
)
def test_energy_is_reported_only_if_it_is_accurate(seconds: float, turns: int, reported: bool) -> None:
    """Short turns never are, however many."""
    # Dense readings, so that one follows the lag at once.
    readings = [
        build_turn(seconds, 0.001, start=float(index), energy_j=lambda time_s: 30 * time_s) for index in range(turns)
    ]

    assert reported == (sum_up(readings).energy_j is not None)


def test_use_of_the_gpu_is_weighted_by_time() -> None:
    """Each reading reports the time before it; the first one that before the turn."""
    readings = [Reading(time_s=time_s, busy_percent=busy) for time_s, busy in ((0.0, 3.0), (1.0, 100.0), (4.0, 20.0))]

    assert 40.0 == pytest.approx(sum_up([readings]).gpu_percent)


def test_clocks_are_those_during_calls() -> None:
    """The one at the beginning of a turn may be that of idling."""
    readings = [
        Reading(time_s=float(second), clock_mhz=mhz) for second, mhz in enumerate((210.0, 1700.0, 1980.0, 1980.0))
    ]
    use = sum_up([readings, readings])

    assert (1980.0, 1700.0) == (use.clock_mhz, use.lowest_clock_mhz)


def test_peaks_are_the_highest_of_all_turns() -> None:
    """Memory and temperature, if they are reported."""
    totals = Totals(lag_s=0.1)
    totals.add(
        build_turn(0.1, memory_used_bytes=lambda time_s: 5 if time_s else 9, temperature_c=lambda time_s: 50 + time_s),
        [3, 4],
    )
    totals.add(build_turn(0.1, memory_used_bytes=lambda time_s: 7))
    use = totals.summarize()

    assert (9, 4, pytest.approx(50.1)) == (use.peak_memory_bytes, use.process_memory_bytes, use.temperature_c)


def test_every_cause_of_throttling_in_a_turn_is_reported() -> None:
    """Every cause of throttling within a turn is reported, and none from before it."""
    before = Reading(time_s=0.0, throttled=frozenset({"thermal"}), events={"over-current": 3, "under-voltage": 1})
    during = Reading(time_s=1.0, throttled=frozenset({"power cap"}), events={"over-current": 3, "under-voltage": 1})
    after = Reading(time_s=2.0, events={"over-current": 4, "under-voltage": 1})

    assert {"power cap", "over-current"} == sum_up([[before, during, after]]).throttled
    assert {"power cap"} == sum_up([[before, during]]).throttled


def test_one_reading_is_not_a_turn() -> None:
    """A single reading has no duration, and its memory counts."""
    use = sum_up([[Reading(time_s=1.0, energy_j=5.0, memory_used_bytes=8, clock_mhz=1.0)]])

    assert Use(samples=1, peak_memory_bytes=8) == use


def test_facts_are_plain_json() -> None:
    """The facts of a use are plain JSON, with a list for throttling."""
    facts = sum_up(
        [build_turn(1.0, clock_mhz=lambda time_s: 900.0, throttled=lambda time_s: frozenset({"thermal", "a"}))]
    ).to_facts()

    assert facts == json.loads(json.dumps(facts))
    assert (["a", "thermal"], 900.0) == (facts["throttled"], facts["clock_mhz"])
