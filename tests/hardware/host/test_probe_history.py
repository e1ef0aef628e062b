"""The states of a host: found where readings have a valley between them, and only if there are enough."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from ngbkit.hardware.host import HostReading, probe_history
from ngbkit.hardware.host.probe_history import LEAST_READINGS, ProbeHistory

NEAR, APART, WORK = 200e-9, 560e-9, 16e-6


def build_history(
    trips: Sequence[tuple[float, int]], works: Sequence[tuple[float, int]] = ((WORK, 1000),)
) -> ProbeHistory:
    """Build the history of readings around those times, so many of each, in random order."""
    generator = random.Random(0)

    def draw(centers: Sequence[tuple[float, int]]) -> list[float]:
        times = [center * generator.lognormvariate(0, 0.02) for center, count in centers for _ in range(count)]
        return generator.sample(times, len(times))

    built = ProbeHistory()
    for trip_s, work_s in zip(draw(trips), draw(works), strict=False):
        built.add(HostReading(trip_s, work_s))
    return built


def test_two_clusters_are_two_states() -> None:
    """The faster state is the usual one, by either probe, and readings of the other are not usual."""
    states = build_history([(APART, 100), (NEAR, 900)])
    usual = states.find_usual()

    assert [0.9, 0.1] == pytest.approx([state.share for state in states.list_states("trip_s")], abs=0.02)
    assert usual["trip_s"].low_s < NEAR < usual["trip_s"].high_s
    assert probe_history.is_usual(HostReading(NEAR, WORK), usual)
    assert not probe_history.is_usual(HostReading(APART, WORK), usual)
    assert not probe_history.is_usual(HostReading(NEAR, 1.7 * WORK), usual)


@pytest.mark.parametrize(
    ("near_count", "apart_count", "is_near"), [(450, 550, True), (550, 450, True), (150, 850, False)]
)
def test_of_frequent_states_the_fastest_is_the_usual_one(near_count: int, apart_count: int, is_near: bool) -> None:
    """Two states that are about as frequent do not take turns at being the usual one; a rare one never is."""
    usual = build_history([(APART, apart_count), (NEAR, near_count)]).find_usual()

    assert is_near == probe_history.is_usual(HostReading(NEAR, WORK), usual)
    assert is_near != probe_history.is_usual(HostReading(APART, WORK), usual)


def test_few_readings_tell_nothing() -> None:
    """Nothing is unusual before there are enough readings; and a reading without a time never is."""
    few = build_history([(NEAR, LEAST_READINGS - 1)])
    assert {} == few.find_usual()
    assert probe_history.is_usual(HostReading(APART, WORK), few.find_usual())

    few.add(HostReading(NEAR, WORK))
    assert not probe_history.is_usual(HostReading(APART, WORK), few.find_usual())
    assert probe_history.is_usual(HostReading(float("nan"), float("nan")), few.find_usual())


def test_a_valley_that_is_not_empty_is_one() -> None:
    """A neighbour on the same physical cores slows arithmetic by any factor from 1.2 on, and seldom by less."""
    generator = random.Random(0)
    slowed = [(WORK * generator.uniform(1.2, 1.8), 1) for _ in range(900)]
    between = [(WORK * generator.uniform(1.05, 1.2), 1) for _ in range(30)]
    built = build_history([(NEAR, 2000)], [(WORK, 1070), *slowed, *between])
    states = built.list_states("work_s")

    assert [0.54, 0.46] == pytest.approx([state.share for state in states], abs=0.02)
    assert 0.98 < states[0].mean_s / WORK < 1.02
    assert not probe_history.is_usual(HostReading(NEAR, 1.3 * WORK), built.find_usual())


def test_times_without_a_valley_are_one_state() -> None:
    """Clocks that follow the load change the times by any factor: all of these are usual."""
    generator = random.Random(0)
    built = ProbeHistory()
    for _ in range(3000):
        built.add(HostReading(NEAR, WORK * generator.uniform(1, 2)))

    assert 1 == len(built.list_states("work_s"))
    assert probe_history.is_usual(HostReading(NEAR, 1.9 * WORK), built.find_usual())


def test_rare_times_are_no_state() -> None:
    """A few readings far from the rest, such as those while the host moves a core, are no state, and not usual."""
    states = build_history([(NEAR, 990), (APART, 10)])
    assert 1 == len(states.list_states("trip_s"))
    assert not probe_history.is_usual(HostReading(APART, WORK), states.find_usual())


def test_a_machine_that_is_moved_for_good_has_another_usual_state() -> None:
    """Old readings fade."""
    states = build_history([(NEAR, 15_000)], [(WORK, 15_000)])
    for _ in range(25_000):
        states.add(HostReading(APART, WORK))
    assert probe_history.is_usual(HostReading(APART, WORK), states.find_usual())
    assert not probe_history.is_usual(HostReading(NEAR, WORK), states.find_usual())


def test_a_history_is_that_of_its_cores(tmp_path: Path) -> None:
    """Each set of cores has its own; a damaged file is an empty history, and is replaced."""
    file = tmp_path / "hosts.json"
    probe_history.save(file, "0,1", build_history([(NEAR, 500)]))
    probe_history.save(file, "2,3", build_history([(APART, 500)]))
    assert probe_history.is_usual(HostReading(NEAR, WORK), probe_history.load(file, "0,1").find_usual())
    assert not probe_history.is_usual(HostReading(NEAR, WORK), probe_history.load(file, "2,3").find_usual())
    assert {} == probe_history.load(file, "4,5").find_usual()

    for damage in ("", "[1]", '{"0,1": {"trip_s": {"x": 1}}}', '{"0,1": 5}', "[" * 100_000):
        file.write_text(damage)
        assert {} == probe_history.load(file, "0,1").find_usual()
        probe_history.save(file, "0,1", build_history([(NEAR, 500)]))
        assert probe_history.load(file, "0,1").find_usual()
