"""The turns of a worker: which pieces are contended, and which turns are repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from ngbkit.device.groups import worker as workers
from ngbkit.device.groups.worker import Worker
from ngbkit.device.timing.patience import Patience
from ngbkit.hardware.conditions import Interference
from ngbkit.hardware.host import HostMonitor, HostReading
from ngbkit.hardware.host.probe_history import LEAST_READINGS, ProbeHistory
from ngbkit.hardware.telemetry import Meter
from ngbkit.sweep.trials import Trial

TRIAL = Trial(workload="w", workload_id="i", factors=(), compiler="identity", device="cpu", batch_size=1)
CALL_S = 0.05
NEAR_S, APART_S = 200e-9, 560e-9
QUIET = Interference(waited=0.0, crowded=0.0, foreign=0.0, steal=0.0, resolution=0.01, active=2.0)
CONTENDED = Interference(waited=0.5, crowded=0.0, foreign=0.3, steal=0.0, resolution=0.01, active=2.0)
STOPPED = Interference(waited=0.0, crowded=0.0, foreign=0.0, steal=0.0, resolution=0.01, active=1.0)


class FakeProbes:
    """Measures one of these readings after the other, and the last one from then on."""

    def __init__(self, trips_s: Sequence[float]) -> None:
        self.trips_s = [*trips_s]

    def read(self) -> HostReading:
        return HostReading(self.trips_s.pop(0) if len(self.trips_s) > 1 else self.trips_s[0], 16e-6)


def build_host(file: Path, trips_s: Sequence[float]) -> HostMonitor:
    """Build the monitor of a host whose cores were near each other so far, and which has these readings now."""
    earlier = ProbeHistory()
    for _ in range(LEAST_READINGS):
        earlier.add(HostReading(NEAR_S, 16e-6))
    probes: Any = FakeProbes(trips_s)
    return HostMonitor(file, "0,1", probes, earlier, earlier.find_usual())


class FakeChild:
    """Takes its calls at once, and says how long they took; the messages it was asked are kept."""

    pid = 1

    def __init__(self) -> None:
        self.messages: list[Mapping[str, Any]] = []
        # The resident memory, and its growth in a call.
        self.resident_bytes = 500_000_000
        self.growth_bytes = 0

    def ask(self, message: Mapping[str, Any], *_: object) -> dict[str, Any]:
        self.messages.append(message)
        spent_s = (message["samples"] + message["settle"]) * CALL_S
        latency_s = [CALL_S] * message["samples"]
        self.resident_bytes += (message["samples"] + message["settle"]) * self.growth_bytes
        times = {"latency_s": latency_s, "spent_s": spent_s, "timed_s": sum(latency_s), "cpu_s": spent_s}
        return {**times, "resident_bytes": self.resident_bytes, "events": {"minor_faults": 7}}


@pytest.fixture
def build_worker(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Worker]:
    """Build a worker whose pieces have that interference, and none after that."""

    def build(pieces: Sequence[Interference], host: HostMonitor | None = None) -> Worker:
        stream: Iterator[Interference] = chain(pieces, repeat(QUIET))

        class FakeMonitor:
            def __init__(self, pid: int) -> None:
                assert pid == FakeChild.pid

            def begin_turn(self) -> None: ...

            def end_turn(self) -> Interference:
                return next(stream)

        monkeypatch.setattr(workers, "InterferenceMonitor", FakeMonitor)
        child = FakeChild()
        worker = Worker(
            trial=TRIAL,
            child=child,
            timeout_s=1.0,
            interrupt=-1,
            report=lambda _: None,
            meter=Meter(None, child.pid),
            host=host,
        )
        worker.steady_call_s = CALL_S
        return worker

    return build


Build = Callable[..., Worker]


def list_pieces(worker: Worker) -> list[tuple[int, int]]:
    """The samples and the settling calls of each piece."""
    return [(message["samples"], message["settle"]) for message in worker.child.messages]


def test_a_turn_is_timed_in_pieces_of_a_tenth_of_a_second(build_worker: Build) -> None:
    """A turn is timed in pieces, of which only the first settles."""
    worker = build_worker([])
    worker.time_turn(0, 5)

    assert [(2, 1), (2, 0), (1, 0)] == list_pieces(worker)
    assert {0: CALL_S} == worker.compute_round_medians()


def test_page_faults_are_those_of_one_timed_call(build_worker: Build) -> None:
    """Each piece has seven: calls that settle are not counted, and each call of a block is."""
    worker = build_worker([])
    worker.time_turn(0, 2)
    assert (7 / 2, 7 / 2) == (worker.compute_faults_a_call(), worker.compute_events_a_call("minor_faults"))

    worker = build_worker([])
    worker.steady_call_s = CALL_S / 1000
    worker.time_turn(0, 2)
    block = worker.child.messages[0]["block"]  # type: ignore[attr-defined]
    assert block > 1
    assert 7 / (2 * block) == worker.compute_faults_a_call()


def test_pieces_while_the_host_had_moved_the_cores_are_repeated(build_worker: Build, tmp_path: Path) -> None:
    """A piece is contended if the cores were apart at either of its ends; the record has both probes and its share."""
    host = build_host(tmp_path / "hosts.json", [NEAR_S, APART_S, APART_S, APART_S, NEAR_S])
    worker = build_worker([], host)
    worker.time_turn(3, 4, Patience(factor=2.0, planned_s=10.0))

    assert [(2, 1), (2, 0), (2, 0), (2, 0), (2, 0)] == list_pieces(worker)
    assert [True] * 8 + [False] * 2 == worker._list_contended()
    assert {3: CALL_S} == worker.compute_round_medians()
    assert [APART_S] * 4 + [NEAR_S] == worker.describe_host()["trip_s"]
    assert [3] * 5 == worker.describe_host()["rounds"]
    assert 0.8 == worker.compute_unusual_share()


def test_other_work_tells_nothing_of_the_host(build_worker: Build, tmp_path: Path) -> None:
    """Readings beside other work are not counted, and a host whose usual state is unknown marks nothing."""
    host = build_host(tmp_path / "hosts.json", [APART_S])
    worker = build_worker([CONTENDED, CONTENDED], host)
    worker.time_turn(0, 4)
    assert 0 == worker.compute_unusual_share()
    assert LEAST_READINGS == host._history.counts["trip_s"].total()

    unknown: Any = FakeProbes([APART_S])
    worker = build_worker([], HostMonitor(tmp_path / "hosts.json", "0,1", unknown, ProbeHistory(), {}))
    worker.time_turn(0, 4)
    assert 0 == worker.compute_unusual_share()
    assert APART_S == worker.compute_probe_median("trip_s")


def test_contended_turns_are_repeated_until_half_of_their_samples_are_uncontended(build_worker: Build) -> None:
    """Contended turns are repeated until half of their samples are uncontended."""
    worker = build_worker([CONTENDED, CONTENDED, QUIET, CONTENDED])
    worker.time_turn(0, 4, Patience(factor=2.0, planned_s=10.0))

    assert 0.0 == worker.contended_share
    assert [(2, 1), (2, 0), (2, 0)] == list_pieces(worker)
    assert 1 == worker.count_rounds(0)


def test_without_patience_nothing_is_repeated(build_worker: Build) -> None:
    """The samples are marked, and their round does not count."""
    worker = build_worker([CONTENDED] * 2)
    worker.time_turn(0, 4)
    worker.time_turn(1, 4)

    assert 4 == len(list_pieces(worker))
    assert 1 == worker.count_rounds(0)
    assert 0.5 == worker.contended_share
    assert {1: CALL_S} == worker.compute_round_medians()


def test_a_few_contended_turns_are_not_repeated(build_worker: Build) -> None:
    """One in twenty is marked on any machine."""
    worker = build_worker([QUIET] * 20 + [CONTENDED])
    for number in range(11):
        worker.time_turn(number, 4, Patience(factor=2.0, planned_s=10.0))

    assert 22 == len(list_pieces(worker))


def test_missing_time_is_a_disturbance(build_worker: Build) -> None:
    """A stop of the process, or a hypervisor that does not tell, shows in nothing but the cores that it had."""
    worker = build_worker([QUIET] * 4 + [STOPPED])
    for number in range(3):
        worker.time_turn(number, 4)

    assert [0, 1, 2] == sorted(worker.compute_round_medians())
    assert 2 == sum(worker._list_contended())


@pytest.mark.parametrize("place", range(3))
def test_a_stop_in_the_first_pieces_is_a_disturbance(build_worker: Build, place: int) -> None:
    """There is nothing to compare the first pieces with until a trial has as many more."""
    pieces = [QUIET] * 3
    pieces[place] = STOPPED
    worker = build_worker(pieces)
    worker.time_turn(0, 4)
    worker.time_turn(1, 4)
    assert 0 == sum(worker._list_contended())

    worker.time_turn(2, 4)
    assert [place] * 2 == [number // 2 for number, contended in enumerate(worker._list_contended()) if contended]


@pytest.mark.parametrize(("growth_bytes", "expected"), [(8_000_000, 8_000_000), (4, 0), (0, 0)])
def test_memory_that_grows_is_estimated_a_call(build_worker: Build, growth_bytes: int, expected: int) -> None:
    """Growth from turn to turn is divided by the calls; that of an allocator's noise is none."""
    worker = build_worker([])
    worker.child.growth_bytes = growth_bytes
    for number in range(6):
        worker.time_turn(number, 2)

    assert expected == worker.estimate_growth_a_call()
    assert bool(expected) == ("memory_growth" in worker._describe_memory())


def test_memory_that_a_pool_took_once_does_not_grow(build_worker: Build) -> None:
    """A growth that ends is none."""
    worker = build_worker([])
    for number in range(12):
        worker.child.growth_bytes = 8_000_000 if number < 3 else 0
        worker.time_turn(number, 2)

    assert 0.0 == worker.estimate_growth_a_call()


def test_a_turn_ends_when_memory_is_short(build_worker: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pieces so far are kept."""
    monkeypatch.setattr(workers.resources, "read_available_memory_bytes", lambda: 1_000_000_000)
    worker = build_worker([])
    worker.child.growth_bytes = 100_000_000
    worker.time_turn(0, 20)

    assert worker.outgrown
    assert 3 == len(list_pieces(worker))
    assert worker._describe_memory()["memory_growth"]["ended"]


def test_the_first_minutes_on_a_machine_are_judged_by_what_is_known_at_their_end(
    build_worker: Build, tmp_path: Path
) -> None:
    """A new machine, whose cores are apart for its first two seconds: these are not taken for the usual state."""
    probes: Any = FakeProbes([APART_S] * 20 + [NEAR_S])
    host = HostMonitor(tmp_path / "hosts.json", "0,1", probes, ProbeHistory(), {})
    worker = build_worker([], host)
    for number in range(10):
        worker.time_turn(number, 4)
    assert 0 == worker.compute_unusual_share()

    for number in range(10, LEAST_READINGS):
        worker.time_turn(number, 4)
    unusual = [piece.unusual for piece in worker._pieces]
    assert [True] * sum(unusual) == unusual[: sum(unusual)]
    assert {APART_S} == {piece.reading.trip_s for piece in worker._pieces if piece.unusual and piece.reading}
    assert {NEAR_S} == {piece.reading.trip_s for piece in worker._pieces if not piece.unusual and piece.reading}
