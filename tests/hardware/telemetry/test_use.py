"""What adds up over turns: energy that is told only where it can be, and what else a chip did."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from ngbkit.hardware.telemetry import Reading, Use
from ngbkit.hardware.telemetry.use import Totals


def turn(seconds: float, period: float = 0.02, start: float = 0.0, **told: Callable[[float], Any]) -> list[Reading]:
    """The readings of a turn; each field as a function of the time."""
    count = round(seconds / period)
    times = [start + seconds * at / count for at in range(count + 1)]
    return [Reading(at_s=at, **{name: of(at) for name, of in told.items()}) for at in times]


def used(turns: Iterable[list[Reading]], lag_s: float = 0.1) -> Use:
    totals = Totals(lag_s=lag_s)
    for readings in turns:
        totals.add(readings)
    return totals.use()


def stepping(watts: Callable[[float], float], every: float = 0.1, step: float = 0.001) -> Callable[[float], float]:
    """A counter of energy that is renewed only so often."""
    return lambda at: sum(watts(step * tick) for tick in range(round(int(at / every + 1e-9) * every / step))) * step


def test_no_turn_tells_nothing() -> None:
    """All is None."""
    assert Use() == used([])


def test_energy_is_the_difference_of_the_counter() -> None:
    """Over the whole turn, though its beginning is not looked at."""
    use = used([turn(2.0, energy_j=lambda at: 1000 + 50 * at)])

    assert (100.0, 2.0) == (pytest.approx(use.energy_j), use.turns_s)


def test_the_counter_goes_before_power() -> None:
    """It misses nothing between two readings."""
    assert 100.0 == pytest.approx(used([turn(2.0, energy_j=lambda at: 50 * at, power_w=lambda at: 70.0)]).energy_j)


def test_without_a_counter_energy_is_the_area_under_power() -> None:
    """By trapezoids."""
    settled = [(0.1, 12.0), (1.1, 22.0), (2.1, 12.0)]
    readings = [Reading(at_s=0.0, power_w=500.0), *(Reading(at_s=at, power_w=power) for at, power in settled)]

    assert 17.0 * 2.1 == pytest.approx(used([readings]).energy_j)


def test_what_ran_before_is_not_charged_to_a_turn() -> None:
    """The counter lags: at the beginning of a turn it still takes in what was consumed before."""
    counter = stepping(lambda at: 2000.0 if at < 1.03 else 100.0)
    use = used([turn(2.0, start=1.03, energy_j=counter)])

    assert 200.0 == pytest.approx(use.energy_j, rel=0.01)


def test_energy_of_turns_adds_up() -> None:
    """Each with what it consumed, and nothing of the time between."""
    turns = [turn(1.0, start=10.0 * at, energy_j=lambda at: 30 * at) for at in range(4)]

    assert 120.0 == pytest.approx(used(turns).energy_j)


@pytest.mark.parametrize(
    ("seconds", "turns", "told"),
    [
        (0.9, 1, False),
        (0.94, 1, True),
        # Only what comes after the lag counts, and less of it makes for more of uncertainty.
        (0.2, 60, False),
        (0.2, 70, True),
        (0.1, 1000, False),
        (0.06, 1000, False),
    ],
)
def test_energy_is_told_only_where_it_is_certain_enough(seconds: float, turns: int, told: bool) -> None:
    """Short turns never are, however many."""
    # Dense readings, so that the first one after the lag comes at once.
    readings = [turn(seconds, 0.001, start=float(at), energy_j=lambda at: 30 * at) for at in range(turns)]

    assert told == (used(readings).energy_j is not None)


def test_a_sensor_that_does_not_lag_needs_no_long_turns() -> None:
    """Its readings are of the turn from the first on."""
    assert 1.5 == pytest.approx(used([turn(0.1, power_w=lambda at: 15.0)], lag_s=0.0).energy_j)


def test_a_counter_that_begins_anew_is_not_believed() -> None:
    """As when the driver was reloaded: without power nothing is known."""
    readings = turn(2.0, energy_j=lambda at: 1000.0 if at < 1 else 5.0)

    assert None is used([readings]).energy_j


def test_readings_without_energy_are_passed_over() -> None:
    """The driver may refuse one of them."""
    use = used([turn(2.0, energy_j=lambda at: None if 0.5 < at < 0.7 else 50 * at)])

    assert 100.0 == pytest.approx(use.energy_j)


def test_use_of_the_gpu_is_weighted_by_time() -> None:
    """Each reading tells of the time before it; the first one of that before the turn."""
    readings = [Reading(at_s=at, busy_percent=busy) for at, busy in ((0.0, 3.0), (1.0, 100.0), (4.0, 20.0))]

    assert 40.0 == pytest.approx(used([readings]).gpu_percent)


def test_clocks_are_those_while_calls_run() -> None:
    """The one at the beginning of a turn may be that of idling."""
    readings = [Reading(at_s=float(at), clock_mhz=mhz) for at, mhz in enumerate((210.0, 1700.0, 1980.0, 1980.0))]
    use = used([readings, readings])

    assert (1980.0, 1700.0) == (use.clock_mhz, use.lowest_clock_mhz)


def test_peaks_are_the_highest_of_all_turns() -> None:
    """Memory and temperature, where they are told."""
    totals = Totals(lag_s=0.1)
    totals.add(turn(0.1, memory_used_bytes=lambda at: 5 if at else 9, temperature_c=lambda at: 50 + at), [3, 4])
    totals.add(turn(0.1, memory_used_bytes=lambda at: 7))
    use = totals.use()

    assert (9, 4, pytest.approx(50.1)) == (use.peak_memory_bytes, use.process_memory_bytes, use.temperature_c)


def test_all_that_slowed_a_turn_is_told() -> None:
    """At any moment of it, and what was counted in it; not what was before, or had been counted before."""
    before = Reading(at_s=0.0, throttled=frozenset({"thermal"}), events={"over-current": 3, "under-voltage": 1})
    during = Reading(at_s=1.0, throttled=frozenset({"power cap"}), events={"over-current": 3, "under-voltage": 1})
    after = Reading(at_s=2.0, events={"over-current": 4, "under-voltage": 1})

    assert {"power cap", "over-current"} == used([[before, during, after]]).throttled
    assert {"power cap"} == used([[before, during]]).throttled


def test_one_reading_is_not_a_turn() -> None:
    """It has no length; what it shows of memory is kept."""
    use = used([[Reading(at_s=1.0, energy_j=5.0, memory_used_bytes=8, clock_mhz=1.0)]])

    assert Use(samples=1, peak_memory_bytes=8) == use


def test_facts_are_plain_json() -> None:
    """What slowed it down is in a list."""
    facts = used([turn(1.0, clock_mhz=lambda at: 900.0, throttled=lambda at: frozenset({"thermal", "a"}))]).facts()

    assert facts == json.loads(json.dumps(facts))
    assert (["a", "thermal"], 900.0) == (facts["throttled"], facts["clock_mhz"])
